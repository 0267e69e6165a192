//! The bytes of a kept listing.

use std::io::{self, Write};

use hotset_core::Error;

use super::{ListedDirectory, Listing, ListingFile, ListingKey, Object, Origin};
use crate::binary::{Garbled, Reader, Writer};
use crate::catalog::{Builder, Catalog, Label, LabelKind, Sample, Shape};
use crate::directory::Stamp;
use crate::store::ObjectVersion;

pub(super) const MAGIC: &[u8; 8] = b"hotsetls";
const FORMAT: u32 = 3;
pub(super) const CHECKSUM: usize = blake3::OUT_LEN;

/// Of a number that may be missing.
const NONE: u64 = u64::MAX;

/// Why a kept listing is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it is not a listing of this version")]
    Foreign,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it answers another key")]
    Another,
    #[error("{0}")]
    Garbled(#[from] Garbled),
    #[error("{0}")]
    Refused(#[from] Error),
    #[error("{0}")]
    Unreadable(#[from] io::Error),
}

impl ListingKey {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer(Vec::new());
        // Writing into memory fails only on a path that is too long to be opened.
        let _ = writer.text(&self.place);
        let _ = writer.text(self.layout);
        let _ = writer.texts(&self.details);
        writer.0
    }
}

impl ListingFile {
    pub(super) fn encode(&self, listing: &Listing, to: &mut impl Write) -> io::Result<()> {
        to.write_all(MAGIC)?;
        let mut writer = Writer(to);
        writer.number(FORMAT)?;
        writer.0.write_all(&self.key.bytes())?;
        encode_origin(&listing.origin, &mut writer)?;
        encode_catalog(&listing.catalog, &mut writer)
    }

    pub(super) fn decode(&self, bytes: &[u8]) -> Result<Listing, Unusable> {
        let whole = bytes.strip_prefix(MAGIC).ok_or(Unusable::Foreign)?;
        let (body, checksum) = whole.split_last_chunk::<CHECKSUM>().ok_or(Garbled)?;
        if blake3::hash(&bytes[..bytes.len() - CHECKSUM]) != blake3::Hash::from_bytes(*checksum) {
            return Err(Unusable::Checksum);
        }
        self.decode_body(body)
    }

    pub(super) fn decode_body(&self, body: &[u8]) -> Result<Listing, Unusable> {
        let mut reader = Reader(body);
        if reader.number()? != FORMAT {
            return Err(Unusable::Foreign);
        }
        let key = self.key.bytes();
        if reader.take(key.len())? != key {
            return Err(Unusable::Another);
        }
        let origin = decode_origin(&mut reader)?;
        let catalog = decode_catalog(&mut reader)?;
        if reader.0.is_empty() { Ok(Listing { catalog, origin }) } else { Err(Garbled.into()) }
    }
}

fn encode_origin<W: Write>(origin: &Origin, writer: &mut Writer<W>) -> io::Result<()> {
    writer.long(origin.listed)?;
    writer.count(origin.directories.len())?;
    for ListedDirectory { path, stamp } in &origin.directories {
        writer.text(path)?;
        writer.long(stamp.modified as u64)?;
        writer.long(stamp.changed as u64)?;
        writer.long(stamp.inode)?;
    }
    writer.count(origin.objects.len())?;
    for Object { key, look } in &origin.objects {
        writer.text(key)?;
        writer.long(look.size)?;
        writer.number(look.version)?;
    }
    Ok(())
}

fn decode_origin(reader: &mut Reader<'_>) -> Result<Origin, Garbled> {
    let mut origin = Origin { listed: reader.long()?, ..Origin::default() };
    for _ in 0..reader.number()? {
        let path = reader.text()?.to_owned();
        let (modified, changed) = (reader.long()? as i64, reader.long()? as i64);
        origin
            .directories
            .push(ListedDirectory { path, stamp: Stamp { modified, changed, inode: reader.long()? } });
    }
    for _ in 0..reader.number()? {
        let key = reader.text()?.to_owned();
        origin
            .objects
            .push(Object { key, look: ObjectVersion { size: reader.long()?, version: reader.number()? } });
    }
    Ok(origin)
}

fn encode_catalog<W: Write>(catalog: &Catalog, writer: &mut Writer<W>) -> io::Result<()> {
    writer.texts(catalog.classes())?;
    writer.texts(catalog.parts())?;
    writer.number(u32::from(catalog.labels_each()) | u32::from(catalog.scattered()) << 1)?;
    writer.number(catalog.label_kind() as u32)?;
    writer.count(catalog.directories().len())?;
    catalog.directories().try_for_each(|path| writer.text(path))?;
    writer.count(catalog.runs().len())?;
    for (directory, label, ids) in catalog.runs() {
        writer.number(directory)?;
        writer.long(label.map_or(NONE, u64::from))?;
        writer.count(ids.len())?;
        for id in ids {
            writer.text(catalog.name(id))?;
            writer.long(catalog.size(id))?;
            writer.number(catalog.version(id))?;
            if catalog.scattered() {
                writer.long(catalog.offset(id).unwrap_or(NONE))?;
                if catalog.labels_each() {
                    encode_label(catalog.label_of(id), writer)?;
                }
                catalog.spans(id).iter().try_for_each(|span| writer.number(*span))?;
            }
        }
    }
    Ok(())
}

fn encode_label<W: Write>(label: Option<Label<'_>>, writer: &mut Writer<W>) -> io::Result<()> {
    match label {
        None => Ok(()),
        Some(Label::Whole(whole)) => writer.number(whole as u32),
        Some(Label::Float(float)) => writer.long(float.to_bits()),
        Some(Label::List { values, .. }) => {
            writer.count(values.len())?;
            values.iter().try_for_each(|value| writer.long(value.to_bits()))
        }
    }
}

fn decode_label<'a>(
    kind: u32,
    reader: &mut Reader<'_>,
    values: &'a mut Vec<f64>,
) -> Result<Label<'a>, Garbled> {
    let is = |other: LabelKind| kind == other as u32;
    if is(LabelKind::Whole) {
        return Ok(Label::Whole(reader.number()? as i32));
    }
    if is(LabelKind::Float) {
        return Ok(Label::Float(f64::from_bits(reader.long()?)));
    }
    if !is(LabelKind::Wholes) && !is(LabelKind::Floats) {
        return Err(Garbled);
    }
    values.clear();
    for _ in 0..reader.number()? {
        values.push(f64::from_bits(reader.long()?));
    }
    Ok(Label::List { values, floats: is(LabelKind::Floats) })
}

fn decode_catalog(reader: &mut Reader<'_>) -> Result<Catalog, Unusable> {
    let (classes, parts) = (reader.texts()?, reader.texts()?);
    let (labels, scattered) = match reader.number()? {
        0 => (false, false),
        2 => (false, true),
        3 => (true, true),
        _ => return Err(Garbled.into()),
    };
    let kind = reader.number()?;
    let mut values = Vec::new();
    let several = if parts.len() > 1 { 2 * parts.len() } else { 0 };
    let mut spans = vec![0; several];
    let mut builder = Builder::of(Shape { classes, labels, parts });
    let mut folders = Vec::new();
    for _ in 0..reader.number()? {
        let path = reader.text()?;
        if !path.is_empty() && !path.split('/').all(is_name) {
            return Err(Garbled.into());
        }
        folders.push(builder.directory(path)?);
    }
    for _ in 0..reader.number()? {
        let folder = *folders.get(reader.number()? as usize).ok_or(Garbled)?;
        let label = match reader.long()? {
            NONE => None,
            label => Some(u32::try_from(label).map_err(|_| Garbled)?),
        };
        for _ in 0..reader.number()? {
            let name = reader.text()?;
            let (size, version) = (reader.long()?, reader.number()?);
            if !scattered {
                let name = Some(name).filter(|name| is_name(name)).ok_or(Garbled)?;
                builder.push(folder, name, size, version, label)?;
                continue;
            }
            let offset = Some(reader.long()?).filter(|&offset| offset != NONE);
            if offset.is_none() && !is_name(name) {
                return Err(Garbled.into());
            }
            let label = if labels { Some(decode_label(kind, reader, &mut values)?) } else { None };
            for span in &mut spans {
                *span = reader.number()?;
            }
            builder.push_sample(folder, name, &Sample { offset, size, version, label, spans: &spans })?;
        }
    }
    Ok(builder.finish())
}

/// Whether `name` stays in its folder.
pub(super) fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

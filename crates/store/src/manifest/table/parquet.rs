//! Parquet tables, by their columns: only those asked for are read.

#[cfg(test)]
use std::sync::Arc;

use bytes::Bytes;
use hotset_core::{Error, Result};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::Type;

use super::{Columns, LABEL, Row, Rows};

pub(super) fn read(bytes: Vec<u8>, label: &str) -> Result<Rows> {
    let wrong = |error: parquet::errors::ParquetError| Error::invalid(format!("it is no Parquet: {error}"));
    let reader = SerializedFileReader::new(Bytes::from(bytes)).map_err(wrong)?;
    let schema = reader.metadata().file_metadata().schema();
    let fields = schema.get_fields();
    let there: Vec<&str> =
        fields.iter().filter(|field| field.is_primitive()).map(|field| field.name()).collect();
    let asked = if label.is_empty() { LABEL } else { label };
    if fields.iter().any(|field| field.name() == asked && !field.is_primitive()) {
        return Err(Error::invalid(format!(
            "its column `{asked}` holds lists or groups, which are read from JSON lines alone: write it as those, or choose \
             another column with `label`"
        )));
    }
    let columns = Columns::choose(&there, label)?;
    let wanted = [Some(columns.key), columns.label, Some("offset"), Some("length")];
    let taken: Vec<_> = fields.iter().filter(|field| wanted.contains(&Some(field.name()))).cloned().collect();
    let shape = Type::group_type_builder(schema.name()).with_fields(taken).build().map_err(wrong)?;
    let mut rows = Rows::default();
    columns.label.unwrap_or_default().clone_into(&mut rows.column);
    for row in reader.get_row_iter(Some(shape)).map_err(wrong)? {
        let row = row.map_err(wrong)?;
        let at = rows.len() + 1;
        let of = |name: &str| row.get_column_iter().find(|(found, _)| *found == name).map(|(_, field)| field);
        let key = match of(columns.key) {
            Some(Field::Str(text)) => text.as_str(),
            other => {
                return Err(Error::invalid(format!("row `{at}` has the key `{other:?}`, which is no text")));
            }
        };
        let label = columns.label.and_then(of).filter(|field| !matches!(field, Field::Null));
        let label = label.map(|field| text(field).ok_or_else(|| refused(at, "label", field))).transpose()?;
        let number = |name: &str| match of(name) {
            None | Some(Field::Null) => Ok(None),
            Some(field) => whole(field).map(Some).ok_or_else(|| refused(at, name, field)),
        };
        let (offset, length) = (number("offset")?, number("length")?);
        rows.push(Row { key, label: label.as_deref(), offset, length })?;
    }
    Ok(rows)
}

fn refused(row: usize, name: &str, field: &Field) -> Error {
    Error::invalid(format!("row `{row}` has the `{name}` `{field}`"))
}

/// A label as text.
fn text(field: &Field) -> Option<String> {
    match field {
        Field::Str(text) => Some(text.clone()),
        // Written with a fraction or an exponent, so that it is read as a float whatever its value.
        Field::Float(float) => float.is_finite().then(|| format!("{float:?}")),
        Field::Double(float) => float.is_finite().then(|| format!("{float:?}")),
        field => signed(field).map(|number| number.to_string()),
    }
}

fn whole(field: &Field) -> Option<u64> {
    match field {
        Field::ULong(number) => Some(*number),
        field => signed(field).and_then(|number| u64::try_from(number).ok()),
    }
}

fn signed(field: &Field) -> Option<i64> {
    Some(match field {
        Field::Byte(number) => i64::from(*number),
        Field::Short(number) => i64::from(*number),
        Field::Int(number) => i64::from(*number),
        Field::Long(number) => *number,
        Field::UByte(number) => i64::from(*number),
        Field::UShort(number) => i64::from(*number),
        Field::UInt(number) => i64::from(*number),
        Field::ULong(number) => i64::try_from(*number).ok()?,
        _ => return None,
    })
}

/// A small table, for tests.
#[cfg(test)]
pub(super) fn sample() -> Vec<u8> {
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    let schema = "message m { required binary key (UTF8); required int64 label; optional int64 length; \
                  required binary blob; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut bytes = Vec::new();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let keys: Vec<ByteArray> = ["a.bin", "b.bin"].map(ByteArray::from).to_vec();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&keys, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[7, -1], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[10], Some(&[1, 0]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&keys, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

/// A table with one column of labels of this type, written by `write`.
#[cfg(test)]
pub(super) fn labelled(
    kind: &str,
    write: impl FnOnce(&mut parquet::file::writer::SerializedColumnWriter<'_>),
) -> Vec<u8> {
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    let schema = parse_message_type(&format!("message m {{ required binary key (UTF8); {kind} }}")).unwrap();
    let mut bytes = Vec::new();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let keys: Vec<ByteArray> = ["a.bin", "b.bin"].map(ByteArray::from).to_vec();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&keys, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    write(&mut column);
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

//! Tables say what was written into them, and no bytes make a reader panic.

use super::*;
use proptest::prelude::*;

type Seen = (String, Option<String>, Option<u64>, Option<u64>);

fn seen(format: Format, text: &[u8], label: &str) -> Result<Vec<Seen>> {
    let rows = read(format, text.to_vec(), label)?;
    let row =
        |at| (rows.key(at).to_owned(), rows.label(at).map(str::to_owned), rows.offset(at), rows.length(at));
    Ok((0..rows.len()).map(row).collect())
}

fn row(key: &str, label: Option<&str>, offset: Option<u64>, length: Option<u64>) -> Seen {
    (key.into(), label.map(str::to_owned), offset, length)
}

#[test]
fn a_csv_table_is_read_by_its_head() {
    let text =
        b"\xef\xbb\xbfid, key,label,offset,length\r\n1,a/b.jpg,cat,0,10\r\n2,\"with, comma\",dog,10,\r\n";
    assert!(seen(Format::Csv, text, "").unwrap_err().message.contains("row `2` has an `offset`"));
    let text = b"key,label,offset,length\na,cat,0,10\n\"b, \"\"c\"\"\",dog,,\n";
    let rows = [row("a", Some("cat"), Some(0), Some(10)), row("b, \"c\"", Some("dog"), None, None)];
    assert_eq!(seen(Format::Csv, text, "").unwrap(), rows);
    assert_eq!(seen(Format::Csv, b"file,kind\nx,3\n", "kind").unwrap(), [row("x", Some("3"), None, None)]);
    assert_eq!(seen(Format::Csv, b"path,label\nx,3\n", "none").unwrap(), [row("x", None, None, None)]);
}

#[test]
fn json_lines_are_read_by_their_names() {
    let text = b"{\"key\": \"a\", \"label\": 3}\n\n{\"key\": \"b\", \"label\": \"x\", \"offset\": 5, \"length\": 6}\r\n";
    let rows = [row("a", Some("3"), None, None), row("b", Some("x"), Some(5), Some(6))];
    assert_eq!(seen(Format::JsonLines, text, "").unwrap(), rows);
}

#[test]
fn a_table_of_keys_alone_and_the_index_of_a_data_frame_need_no_label() {
    for text in ["key\nx\n", ",key,length\n0,x,1\n", "__index_level_0__,path\n0,x\n"] {
        assert_eq!(seen(Format::Csv, text.as_bytes(), "").unwrap()[0].1, None);
    }
    assert_eq!(seen(Format::Csv, b"key,width\nx,1\n", "none").unwrap(), [row("x", None, None, None)]);
}

#[test]
fn what_is_wrong_is_told_with_its_row() {
    for (format, text, label, says) in [
        (Format::Csv, &b"a,b\n1,2\n"[..], "", "no column `key`"),
        (
            Format::Csv,
            b"key,sort\nx,1\n",
            "kind",
            "no column `kind`, which `label` asks for, among `key`, `sort`",
        ),
        (
            Format::Csv,
            b"key,width,target\nx,1,2\n",
            "",
            "no column `label`, but `width`, `target`: say which",
        ),
        (
            Format::JsonLines,
            b"{\"key\": \"a\", \"y\": 1}\n",
            "",
            "row `1` is wrong: it has no column `label`, but `y`: say which holds the labels, like `label=\"y\"`",
        ),
        (Format::Csv, b"key,length\nx,-1\n", "", "`-1` in row `1` is no `length`"),
        (Format::Csv, b"key,label\nx\n", "", "no CSV"),
        (Format::JsonLines, b"{\"key\": \"a\"}\n[]\n", "", "row `2` is no JSON object"),
        (Format::JsonLines, b"{\"key\": 1}\n", "", "row `1` has a `key`"),
        (Format::JsonLines, b"{\"key\": \"a\", \"label\": true}\n", "", "the label `true`"),
        (
            Format::JsonLines,
            b"{\"key\": \"a\", \"label\": 1}\n{\"key\": \"b\"}\n",
            "",
            "row `2` has no label",
        ),
        (Format::JsonLines, b"{\"key\": \"a\"}\n{\"key\": \"b\", \"label\": 1}\n", "", "row `2` has a label"),
        (Format::JsonLines, b"{\"key\": \"a\", \"length\": 1.5}\n", "", "the `length` `1.5`"),
        (Format::JsonLines, b"{", "", "row `1` is no JSON"),
        (Format::Parquet, b"PAR1", "", "no Parquet"),
    ] {
        let error = seen(format, text, label).unwrap_err();
        assert!(error.message.contains(says), "{}", error.message);
    }
    assert!(Format::of("x.txt").unwrap_err().message.contains("`.csv`"));
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_is_read_by_its_columns() {
    let rows = [row("a.bin", Some("7"), None, Some(10)), row("b.bin", Some("-1"), None, None)];
    assert_eq!(seen(Format::Parquet, &parquet::sample(), "").unwrap(), rows);
    assert!(seen(Format::Parquet, &parquet::sample(), "kind").unwrap_err().message.contains("`kind`"));
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for format in [Format::Csv, Format::JsonLines, Format::Parquet] {
            let _ = seen(format, &bytes, "");
        }
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "(key|label|offset|,|\"|\n|\\{|\\}|:|[a-z0-9]){0,60}") {
        for format in [Format::Csv, Format::JsonLines] {
            let _ = seen(format, text.as_bytes(), "");
            let _ = seen(format, format!("key,label\n{text}").as_bytes(), "label");
        }
    }
}

#[cfg(feature = "parquet")]
#[test]
fn floats_of_parquet_are_floats_and_lists_are_refused_by_their_column() {
    use ::parquet::data_type::{DoubleType, FloatType, Int32Type};

    let text = |bytes: &[u8]| -> Vec<String> {
        seen(Format::Parquet, bytes, "").unwrap().into_iter().map(|(_, label, ..)| label.unwrap()).collect()
    };
    let doubles = parquet::labelled("required double label;", |column| {
        column.typed::<DoubleType>().write_batch(&[2.0, 0.1], None, None).unwrap();
    });
    assert_eq!(text(&doubles), ["2.0", "0.1"]);
    let floats = parquet::labelled("required float label;", |column| {
        column.typed::<FloatType>().write_batch(&[10.0, 0.1], None, None).unwrap();
    });
    assert_eq!(text(&floats), ["10.0", "0.1"]);
    let unknown = parquet::labelled("required double label;", |column| {
        column.typed::<DoubleType>().write_batch(&[2.0, f64::NAN], None, None).unwrap();
    });
    let error = seen(Format::Parquet, &unknown, "").unwrap_err();
    assert!(error.message.contains("row `2` has the `label`"), "{error}");
    let lists = "optional group label (LIST) { repeated group list { optional int32 element; } }";
    let lists = parquet::labelled(lists, |column| {
        column.typed::<Int32Type>().write_batch(&[1, 2], Some(&[3, 3]), Some(&[0, 0])).unwrap();
    });
    let error = seen(Format::Parquet, &lists, "").unwrap_err();
    assert!(error.message.contains("column `label` holds lists"), "{error}");
}

#[cfg(feature = "parquet")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_forged_parquet_file_never_panics(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        short in any::<bool>(),
    ) {
        let mut bytes = parquet::sample();
        for (place, with) in flips {
            let place = place.index(bytes.len());
            bytes[place] = with;
        }
        if short {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = seen(Format::Parquet, &bytes, "");
    }
}

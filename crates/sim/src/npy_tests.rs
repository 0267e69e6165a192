use proptest::prelude::*;

use super::*;

/// A file as NumPy writes it: version 1, padded to 64 bytes.
fn file(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend(data);
    bytes
}

fn load(bytes: &[u8]) -> Result<Array<f64>> {
    read(&mut &bytes[..], "x.npy", &Ok)
}

fn refusal(bytes: &[u8]) -> String {
    load(bytes).unwrap_err().message
}

#[test]
fn numbers_of_every_width_and_order_are_read() {
    let cases: [(&str, Vec<u8>); 8] = [
        ("<f2", vec![0x00, 0x3c, 0x00, 0xc0]),
        (">f2", vec![0x3c, 0x00, 0xc0, 0x00]),
        ("<f4", [1.0f32, -2.0].iter().flat_map(|value| value.to_le_bytes()).collect()),
        ("<f8", [1.0f64, -2.0].iter().flat_map(|value| value.to_le_bytes()).collect()),
        ("|i1", vec![1, 0xfe]),
        (">i4", [1i32, -2].iter().flat_map(|value| value.to_be_bytes()).collect()),
        ("<i8", [1i64, -2].iter().flat_map(|value| value.to_le_bytes()).collect()),
        ("<i2", [1i16, -2].iter().flat_map(|value| value.to_le_bytes()).collect()),
    ];
    for (descr, data) in cases {
        assert_eq!(load(&file(descr, "False", "(2,)", &data)).unwrap().values, [1.0, -2.0], "{descr}");
    }
    assert_eq!(
        load(&file("<u8", "False", "(1,)", &[0, 0, 0, 0, 1, 0, 0, 0])).unwrap().values,
        [4294967296.0]
    );
}

#[test]
fn an_array_saved_column_by_column_is_turned() {
    let array = load(&file("|u1", "True", "(2, 3)", &[1, 4, 2, 5, 3, 6])).unwrap();
    assert_eq!((array.shape, array.values), (vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
}

#[test]
fn a_number_out_of_place_is_named_by_its_index() {
    let refuse = |number: f64| if number > 4.0 { Err("too large") } else { Ok(number) };
    for (fortran, data) in [("False", [1, 2, 3, 4, 4, 5]), ("True", [1, 2, 3, 4, 4, 5])] {
        let error = read(&mut &file("|u1", fortran, "(2, 3)", &data)[..], "x", &refuse).unwrap_err();
        assert!(error.message.contains("the number at [1, 2] is `5`: too large"), "{error}");
    }
}

#[test]
fn every_refusal_names_the_file_and_says_why() {
    let whole = file("<f4", "False", "(2,)", &[0; 8]);
    for (bytes, reason) in [
        (b"not an array at all".to_vec(), "does not begin as NumPy's arrays do"),
        (Vec::new(), "ends within its header"),
        (whole[..40].to_vec(), "ends within its header"),
        (whole[..whole.len() - 1].to_vec(), "ends before the 2 numbers that its shape [2] says"),
        (file("|O", "False", "(2,)", &[0; 8]), "of type `|O`"),
        (file("<c8", "False", "(2,)", &[0; 16]), "of type `<c8`"),
        (file("<f4", "Perhaps", "(2,)", &[0; 8]), "neither `True` nor `False`"),
        (file("<f4", "False", "(-2,)", &[0; 8]), "holds `-2`"),
        (file("<f4", "False", "2", &[0; 8]), "no tuple"),
        (file("<f4", "False", "(99999999999, 99999999999)", &[]), "too large"),
        (file("<f4", "False", "(99999999, 99999999)", &[0; 64]), "ends before"),
        ([&MAGIC[..], &[9, 0, 0, 0]].concat(), "version 9"),
        ([&MAGIC[..], &[2, 0, 0xff, 0xff, 0xff, 0xff]].concat(), "claims 4294967295 bytes"),
    ] {
        let message = refusal(&bytes);
        assert!(message.starts_with("cannot use `x.npy`: ") && message.contains(reason), "{message}");
    }
}

#[test]
fn empty_and_scalar_arrays_have_their_shape() {
    assert_eq!(
        load(&file("<f4", "False", "(0, 7)", &[])).unwrap(),
        Array { shape: vec![0, 7], values: vec![] }
    );
    assert_eq!(
        load(&file("<f4", "False", "()", &[0; 4])).unwrap(),
        Array { shape: vec![], values: vec![0.0] }
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = load(&bytes);
        let _ = load(&[&MAGIC[..], &[1, 0], &bytes[..]].concat());
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_flipped_or_shortened_file_is_read_or_refused(
        at in 0usize..200, flip in 1u8.., keep in 0usize..200, fortran: bool,
    ) {
        let mut bytes = file("<f8", if fortran { "True" } else { "False" }, "(3, 2)", &[7; 48]);
        let length = bytes.len();
        bytes[at % length] ^= flip;
        let _ = load(&bytes);
        bytes.truncate(keep % (length + 1));
        let _ = load(&bytes);
    }

    #[test]
    fn headers_that_almost_fit_never_panic(text in "\\{('descr': |'shape': |'fortran_order': |[(),'<f0-9 TrueFals]){0,12}\\}") {
        let _ = parse(&text);
    }
}

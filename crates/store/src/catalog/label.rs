//! Labels that samples have of their own: whole numbers, floats, or lists of either.
//!
//! All samples of a catalog have one kind. Whole numbers among floats are floats, in lists as well. A whole number costs
//! 4 bytes, a float 8, a list 8 and 8 for each of its values.

/// The label of one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Label<'a> {
    /// A whole number, or the number of a class.
    Whole(i32),
    /// A number with a fraction, or written as one.
    Float(f64),
    /// Several numbers.
    List {
        /// They, in order.
        values: &'a [f64],
        /// Whether one of them is a float.
        floats: bool,
    },
}

/// What the labels of a catalog are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LabelKind {
    /// There are none.
    #[default]
    None,
    /// Whole numbers, or numbers of classes.
    Whole,
    /// Floats.
    Float,
    /// Lists of whole numbers.
    Wholes,
    /// Lists of floats.
    Floats,
}

/// The labels of all samples.
#[derive(Debug)]
pub(crate) enum Each {
    Whole(Vec<i32>),
    Float(Vec<f64>),
    Lists {
        floats: bool,
        /// Where the list of each sample ends in `values`.
        ends: Vec<u64>,
        values: Vec<f64>,
    },
}

impl Each {
    /// No labels yet, of what kind they will be.
    pub(crate) fn new() -> Self {
        Self::Whole(Vec::new())
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Whole(all) => all.is_empty(),
            Self::Float(all) => all.is_empty(),
            Self::Lists { ends, .. } => ends.is_empty(),
        }
    }

    /// Adds the label of the next sample; false if it is of another kind than those before it.
    pub(crate) fn push(&mut self, label: Label<'_>) -> bool {
        if self.is_empty() {
            *self = match label {
                Label::Whole(_) => Self::Whole(Vec::new()),
                Label::Float(_) => Self::Float(Vec::new()),
                Label::List { floats, .. } => Self::Lists { floats, ends: Vec::new(), values: Vec::new() },
            };
        }
        if let (Self::Whole(all), Label::Float(_)) = (&*self, label) {
            *self = Self::Float(all.iter().map(|&whole| f64::from(whole)).collect());
        }
        match (self, label) {
            (Self::Whole(all), Label::Whole(whole)) => all.push(whole),
            (Self::Float(all), Label::Float(float)) => all.push(float),
            (Self::Float(all), Label::Whole(whole)) => all.push(f64::from(whole)),
            (Self::Lists { floats, ends, values }, Label::List { values: more, floats: some }) => {
                *floats |= some;
                values.extend_from_slice(more);
                ends.push(values.len() as u64);
            }
            _ => return false,
        }
        true
    }

    pub(crate) fn kind(&self) -> LabelKind {
        match self {
            Self::Whole(_) => LabelKind::Whole,
            Self::Float(_) => LabelKind::Float,
            Self::Lists { floats: false, .. } => LabelKind::Wholes,
            Self::Lists { floats: true, .. } => LabelKind::Floats,
        }
    }

    /// The label of a sample.
    pub(crate) fn get(&self, sample: usize) -> Label<'_> {
        match self {
            Self::Whole(all) => Label::Whole(all[sample]),
            Self::Float(all) => Label::Float(all[sample]),
            Self::Lists { floats, ends, values } => {
                let begin = if sample == 0 { 0 } else { ends[sample - 1] as usize };
                Label::List { values: &values[begin..ends[sample] as usize], floats: *floats }
            }
        }
    }

    pub(crate) fn shrink(&mut self) {
        match self {
            Self::Whole(all) => all.shrink_to_fit(),
            Self::Float(all) => all.shrink_to_fit(),
            Self::Lists { ends, values, .. } => {
                ends.shrink_to_fit();
                values.shrink_to_fit();
            }
        }
    }

    /// Heap bytes.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Whole(all) => all.capacity() * size_of::<i32>(),
            Self::Float(all) => all.capacity() * size_of::<f64>(),
            Self::Lists { ends, values, .. } => 8 * (ends.capacity() + values.capacity()),
        }
    }

    /// Calls `take` with the bytes that tell these labels from others.
    pub(crate) fn hash(&self, take: &mut dyn FnMut(&[u8])) {
        take(&[self.kind() as u8]);
        match self {
            Self::Whole(all) => all.iter().for_each(|whole| take(&whole.to_le_bytes())),
            Self::Float(all) => all.iter().for_each(|float| take(&float.to_bits().to_le_bytes())),
            Self::Lists { ends, values, .. } => {
                ends.iter().for_each(|end| take(&end.to_le_bytes()));
                values.iter().for_each(|value| take(&value.to_bits().to_le_bytes()));
            }
        }
    }
}

impl Label<'_> {
    /// Appends its values as they travel: whole numbers as they are, floats by their bits.
    pub fn append(&self, to: &mut Vec<i64>) {
        let bits = |float: f64| float.to_bits() as i64;
        match *self {
            Self::Whole(whole) => to.push(i64::from(whole)),
            Self::Float(float) => to.push(bits(float)),
            Self::List { values, floats: true } => to.extend(values.iter().map(|&value| bits(value))),
            Self::List { values, floats: false } => to.extend(values.iter().map(|&value| value as i64)),
        }
    }

    /// A number that equal labels share, and others hardly do.
    pub fn number(&self) -> i64 {
        match *self {
            Self::Whole(whole) => i64::from(whole),
            Self::Float(float) => float.to_bits() as i64,
            Self::List { values, .. } => {
                let mut hasher = blake3::Hasher::new();
                for value in values {
                    hasher.update(&value.to_bits().to_le_bytes());
                }
                let hash = hasher.finalize();
                i64::from_le_bytes(std::array::from_fn(|at| hash.as_bytes()[at]))
            }
        }
    }
}

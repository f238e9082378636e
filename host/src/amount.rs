//! Packet counts and rates as text.

/// A number with commas between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A packet rate: grouped, with one decimal if it is small.
pub(crate) fn rate(packets: f64) -> String {
    if packets < 10.0 && packets.fract() != 0.0 {
        format!("{packets:.1}")
    } else {
        grouped(packets.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_thousands_separators() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!((rate(0.25), rate(451_300.2)), ("0.2".to_owned(), "451,300".to_owned()));
    }
}

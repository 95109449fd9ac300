//! Numbers for people: counts in groups of three, bytes and rates with their unit.

/// `1234567` → `1,234,567`
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// All together; of numbers that cannot be, as many as there may be.
pub fn total<'a>(numbers: impl IntoIterator<Item = &'a u64>) -> u64 {
    numbers.into_iter().copied().fold(0, u64::saturating_add)
}

/// A number of things: `1 port`, `1,234 ports`.
pub fn counted(number: u64, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {thing}{ending}", count(number))
}

/// Bytes with three significant digits in powers of 1000: `12.3 MB`.
pub fn bytes(number: u64) -> String {
    match number {
        0..1000 => format!("{number} B"),
        _ => scaled(approximate(number), "B"),
    }
}

/// Bits per second: `9.70 Gb/s`.
pub fn bits_per_second(rate: f64) -> String {
    scaled(rate, "b/s")
}

/// Packets per second: `1.20 Mpackets/s`.
pub fn packets_per_second(rate: f64) -> String {
    scaled(rate, "packets/s")
}

/// A number with its prefix and nothing else, for narrow columns: `9.70G`.
pub fn short(number: f64) -> String {
    scaled(number, "").replace(' ', "")
}

/// More digits than the rounding keeps mean nothing.
#[expect(clippy::cast_precision_loss)]
pub fn approximate(number: u64) -> f64 {
    number as f64
}

fn scaled(number: f64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut number = number;
    let mut at = 0;
    // A number that would be rounded to 1000 is shown in the next unit.
    while number >= 999.5 && at + 1 < PREFIXES.len() {
        number /= 1000.0;
        at += 1;
    }
    let prefix = PREFIXES[at];
    let digits = if number >= 99.95 || at == 0 {
        0
    } else if number >= 9.995 {
        1
    } else {
        2
    };
    format!("{number:.digits$} {prefix}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        let shown = [0, 999, 1000, 1_234_567, 100_000].map(count);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567", "100,000"]);
    }

    #[test]
    fn one_thing_is_not_several() {
        let shown = [0, 1, 2, 1000].map(|number| counted(number, "port"));
        assert_eq!(shown, ["0 ports", "1 port", "2 ports", "1,000 ports"]);
    }

    #[test]
    fn bytes_have_three_digits_and_a_unit() {
        let shown = [0, 999, 1000, 12_340, 999_600, 123_456_789, u64::MAX].map(bytes);
        let right = ["0 B", "999 B", "1.00 kB", "12.3 kB", "1.00 MB", "123 MB", "18447 PB"];
        assert_eq!(shown, right);
    }

    #[test]
    fn rates_have_their_unit() {
        assert_eq!(bits_per_second(9.7e9), "9.70 Gb/s");
        assert_eq!(bits_per_second(0.0), "0 b/s");
        assert_eq!(packets_per_second(1_234.0), "1.23 kpackets/s");
    }
}

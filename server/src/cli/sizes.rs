//! Sizes of disks and images: `400GB` means what is printed on a disk, `1TiB` what a partition tool says.

/// Reads a size in bytes.
///
/// # Errors
/// What was expected.
pub fn size_parse(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let wrong = || format!("{text:?}: expected bytes, or a number with KB, MB, GB, TB, KiB, MiB, GiB or TiB");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).ok_or_else(wrong)
}

/// A size for people: three digits and a decimal unit.
#[allow(clippy::cast_precision_loss)] // Three digits are shown.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KB", "MB", "GB", "TB", "PB"] {
        // What would be shown as 1000 is 1.00 of the next unit.
        if value < 999.5 {
            break;
        }
        value /= 1_000.0;
        unit = next;
    }
    match unit {
        "B" => format!("{bytes} B"),
        _ if value < 9.995 => format!("{value:.2} {unit}"),
        _ if value < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("512", 512),
            ("400GB", 400_000_000_000),
            ("1tib", 1 << 40),
            ("10 MiB", 10 << 20),
        ] {
            assert_eq!(size_parse(text), Ok(bytes));
        }
        for bad in ["", "GB", "1.5GB", "-1", "5 apples", "99999999TB"] {
            assert!(size_parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown_with_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 KB"),
            (12_345_678, "12.3 MB"),
            (999_600_000, "1.00 GB"),
            (480_103_981_056, "480 GB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}

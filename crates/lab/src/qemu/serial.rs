//! Reading a serial console: firmware paints with terminal escape sequences, people and tests look for words.

/// How many lines [`tail`] keeps.
const TAIL_LINES: usize = 20;

/// `text` without escape sequences (ECMA-48 CSI and two-byte ones) and without other control characters than line
/// feed and tab. A sequence cut off at the end is dropped.
pub(crate) fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            // CSI: parameters and intermediates, then one final byte of 0x40 to 0x7e.
            '\u{1b}' if characters.next() == Some('[') => {
                let _final_byte = characters.find(|c| ('\u{40}'..='\u{7e}').contains(c));
            }
            '\n' | '\t' => plain.push(character),
            _ if character.is_control() => {}
            _ => plain.push(character),
        }
    }
    plain
}

/// The last lines of `text` that show something.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines
        .get(lines.len().saturating_sub(TAIL_LINES)..)
        .unwrap_or_default()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_painted_by_firmware_read_as_words() {
        let cases = [
            (
                "\u{1b}[2J\u{1b}[01;01H\u{1b}[=3h>>Start \u{1b}[0mPXE over IPv4.\r\n",
                ">>Start PXE over IPv4.\n",
            ),
            ("plain\ttext\r\n", "plain\ttext\n"),
            ("\u{1b}cReset", "Reset"),
            ("cut off \u{1b}[0", "cut off "),
        ];
        for (raw, plain) in cases {
            assert_eq!(without_escapes(raw), plain, "{raw:?}");
        }
    }

    #[test]
    fn the_tail_skips_empty_lines() {
        let text = format!("first\n{}last\n", "\n  \n".repeat(100));
        assert_eq!(tail(&text), "first\nlast");
    }
}

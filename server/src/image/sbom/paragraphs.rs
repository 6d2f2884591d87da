//! The form of Debian's control files: paragraphs of fields, with values that may go on in the next line.

/// One paragraph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Paragraph<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl<'a> Paragraph<'a> {
    /// The first line of a field, without white space around it; none when there is no such field or nothing in it.
    pub(super) fn first(&self, name: &str) -> Option<&'a str> {
        let line = self.lines(name)?.first()?.trim();
        (!line.is_empty()).then_some(line)
    }

    /// Whether it has a field.
    pub(super) fn has(&self, name: &str) -> bool {
        self.lines(name).is_some()
    }

    fn lines(&self, name: &str) -> Option<&[&'a str]> {
        let field = self.0.iter().find(|(field, _)| field.eq_ignore_ascii_case(name))?;
        Some(&field.1)
    }
}

/// Takes a text apart. Lines that are of no field are passed over.
pub(super) fn paragraphs(text: &str) -> impl Iterator<Item = Paragraph<'_>> {
    let mut lines = text.lines().chain([""]);
    std::iter::from_fn(move || {
        let mut paragraph = Paragraph::default();
        for line in lines.by_ref() {
            if line.trim().is_empty() {
                if !paragraph.0.is_empty() {
                    return Some(paragraph);
                }
            } else if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = paragraph.0.last_mut() {
                    value.push(line);
                }
            } else if let Some((name, value)) = line.split_once(':') {
                paragraph.0.push((name, vec![value]));
            }
        }
        None
    })
}

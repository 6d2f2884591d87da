//! Maps of sparse files: GNU's old form and the three PAX forms (GNU tar manual, "Sparse Formats").

use super::pax::{self, Records};

/// A run of data in a sparse file. The archive holds these runs one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where it belongs.
    pub(crate) offset: u64,
    /// Its bytes.
    pub(crate) length: u64,
}

/// Most runs of one file: a file of 64 GiB with a hole in every 512 KiB.
pub(crate) const SEGMENTS_MAX: usize = 1 << 17;

/// Checks that runs are in order, lie in the file, and are exactly what the archive holds.
pub(crate) fn check(segments: &[Segment], size: u64, stored: u64) -> Result<(), String> {
    let mut end = 0_u64;
    let mut total = 0_u64;
    for segment in segments {
        if segment.offset < end {
            return Err(format!("a run at {} overlaps the one before it", segment.offset));
        }
        end = segment
            .offset
            .checked_add(segment.length)
            .filter(|&end| end <= size)
            .ok_or_else(|| {
                format!(
                    "a run of {} bytes at {} is beyond the size {size}",
                    segment.length, segment.offset
                )
            })?;
        total += segment.length;
    }
    if total != stored {
        return Err(format!("its runs have {total} bytes, the archive holds {stored}"));
    }
    Ok(())
}

/// The map of PAX forms 0.0 (`GNU.sparse.offset` and `.numbytes` again and again) and 0.1 (`GNU.sparse.map`).
pub(crate) fn from_records(records: &Records) -> Result<Option<Vec<Segment>>, String> {
    if let Some(map) = pax::value(records, "GNU.sparse.map") {
        let numbers: Option<Vec<u64>> = map
            .split(|&byte| byte == b',')
            .take(2 * SEGMENTS_MAX + 1)
            .map(pax::decimal)
            .collect();
        return pairs(&numbers.ok_or("GNU.sparse.map holds something that is no number")?).map(Some);
    }
    let mut numbers = Vec::new();
    for (key, value) in records {
        let place = match key.as_slice() {
            b"GNU.sparse.offset" => 0,
            b"GNU.sparse.numbytes" => 1,
            _ => continue,
        };
        if numbers.len() % 2 != place {
            return Err("GNU.sparse.offset and GNU.sparse.numbytes do not alternate".to_owned());
        }
        numbers.push(pax::decimal(value).ok_or("a GNU.sparse record holds no number")?);
    }
    if numbers.is_empty() {
        return Ok(None);
    }
    pairs(&numbers).map(Some)
}

/// Runs from `offset, length, offset, length, …`.
pub(crate) fn pairs(numbers: &[u64]) -> Result<Vec<Segment>, String> {
    if !numbers.len().is_multiple_of(2) || numbers.len() > 2 * SEGMENTS_MAX {
        return Err(format!(
            "{} numbers; expected pairs, at most {SEGMENTS_MAX}",
            numbers.len()
        ));
    }
    Ok(numbers
        .chunks_exact(2)
        .map(|pair| Segment {
            offset: pair[0],
            length: pair[1],
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offset: u64, length: u64) -> Segment {
        Segment { offset, length }
    }

    #[test]
    fn a_map_must_fit_size_and_data() {
        assert!(check(&[segment(0, 5), segment(10, 5), segment(20, 0)], 20, 10).is_ok());
        let bad = [
            (vec![segment(10, 5), segment(0, 5)], 20, 10),
            (vec![segment(0, 11)], 10, 11),
            (vec![segment(u64::MAX, 2)], 10, 2),
            (vec![segment(0, 5)], 10, 6),
        ];
        for (segments, size, stored) in bad {
            assert!(check(&segments, size, stored).is_err(), "{segments:?}");
        }
    }

    #[test]
    fn both_record_forms_are_read() {
        let record = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        let expected = Some(vec![segment(0, 5), segment(10, 6)]);
        assert_eq!(
            from_records(&vec![record("GNU.sparse.map", "0,5,10,6")]).unwrap(),
            expected
        );
        let mut alternating = vec![
            record("GNU.sparse.offset", "0"),
            record("GNU.sparse.numbytes", "5"),
            record("GNU.sparse.offset", "10"),
            record("GNU.sparse.numbytes", "6"),
        ];
        assert_eq!(from_records(&alternating).unwrap(), expected);
        alternating.swap(1, 2);
        assert!(from_records(&alternating).is_err());
        assert!(from_records(&vec![record("GNU.sparse.map", "0,5,10")]).is_err());
    }
}

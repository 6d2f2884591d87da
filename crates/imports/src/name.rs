//! Names of entries: relative, without a way up.

use crate::EntryProblem;

/// Longest path and longest component that Linux takes, in bytes.
const PATH_BYTES_MAX: usize = 4096;
const COMPONENT_BYTES_MAX: usize = 255;

/// Splits the name of an entry into its components. `.` components and repeated slashes mean nothing; the root itself
/// (`./`) has none.
pub(crate) fn components(name: &[u8], depth_max: usize) -> Result<Vec<&[u8]>, EntryProblem> {
    if name.starts_with(b"/") {
        return Err(EntryProblem::Absolute);
    }
    relative_components(name, depth_max)
}

/// The same for the target of a hard link, which some builders write from the root: `/usr/bin/x` is `usr/bin/x` there,
/// as container engines take it. It names an entry of this root in any case.
pub(crate) fn link_components(name: &[u8], depth_max: usize) -> Result<Vec<&[u8]>, EntryProblem> {
    relative_components(name.strip_prefix(b"/").unwrap_or(name), depth_max)
}

fn relative_components(name: &[u8], depth_max: usize) -> Result<Vec<&[u8]>, EntryProblem> {
    if name.is_empty() {
        return Err(EntryProblem::Empty);
    }
    if name.contains(&0) {
        return Err(EntryProblem::Nul);
    }
    if name.len() > PATH_BYTES_MAX {
        return Err(EntryProblem::TooLong);
    }
    let mut components = Vec::new();
    for component in name.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err(EntryProblem::Climbs),
            _ if component.len() > COMPONENT_BYTES_MAX => return Err(EntryProblem::TooLong),
            _ => components.push(component),
        }
    }
    if components.len() > depth_max {
        return Err(EntryProblem::TooDeep(depth_max));
    }
    Ok(components)
}

/// A path below a folder, both relative to the root; the root is empty.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if !folder.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_inside_the_root_pass() {
        let good: [(&[u8], &[&[u8]]); 4] = [
            (b"./", &[]),
            (b"usr//bin/./x", &[b"usr", b"bin", b"x"]),
            (b"..a/b..", &[b"..a", b"b.."]),
            (b"with\nline", &[b"with\nline"]),
        ];
        for (name, expected) in good {
            assert_eq!(components(name, 8).unwrap(), expected);
        }
        let long = [b'x'; 256];
        let bad: [(&[u8], EntryProblem); 7] = [
            (b"", EntryProblem::Empty),
            (b"/etc/passwd", EntryProblem::Absolute),
            (b"a/../../b", EntryProblem::Climbs),
            (b"..", EntryProblem::Climbs),
            (b"a\0b", EntryProblem::Nul),
            (&long, EntryProblem::TooLong),
            (b"1/2/3/4/5/6/7/8/9", EntryProblem::TooDeep(8)),
        ];
        for (name, problem) in bad {
            assert_eq!(components(name, 8), Err(problem));
        }
        assert_eq!(link_components(b"/usr/x", 8).unwrap(), [b"usr" as &[u8], b"x"]);
        assert_eq!(link_components(b"/../x", 8), Err(EntryProblem::Climbs));
    }
}

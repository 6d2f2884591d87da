//! Which folders hold drop-ins of systemd (systemd.unit(5)).
//!
//! A drop-in changes what a unit does and leaves its state as it is, so that only its file tells. The folder alone does
//! nothing: each file in it is told by itself, with its digest, and never only as "a folder was added".

/// Folders of unit files; `x.service.d`, `x@.service.d`, `service.d` in them hold drop-ins.
const UNIT_FOLDERS: [&[u8]; 3] = [
    b"/etc/systemd/system/",
    b"/usr/lib/systemd/system/",
    b"/usr/local/lib/systemd/system/",
];
/// Folders of systemd's own settings; `journald.conf.d` in them holds drop-ins.
const SETTINGS_FOLDERS: [&[u8]; 3] = [b"/etc/systemd/", b"/usr/lib/systemd/", b"/usr/local/lib/systemd/"];

/// Whether this is the path of a folder of drop-ins.
pub(crate) fn is_drop_in_folder(path: &[u8]) -> bool {
    let has_name = |folders: &[&[u8]], end: &[u8]| {
        let names = folders.iter().filter_map(|folder| path.strip_prefix(*folder));
        let mut names = names.filter(|name| !name.contains(&b'/'));
        names.any(|name| name.len() > end.len() && name.ends_with(end))
    };
    has_name(&UNIT_FOLDERS, b".d") || has_name(&SETTINGS_FOLDERS, b".conf.d")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ins_are_known_by_their_folder() {
        for path in [
            "/etc/systemd/system/ssh.service.d",
            "/etc/systemd/system/getty@.service.d",
            "/usr/lib/systemd/system/service.d",
            "/etc/systemd/journald.conf.d",
        ] {
            assert!(is_drop_in_folder(path.as_bytes()), "{path}");
        }
        for path in [
            "/etc/systemd/system",
            "/etc/systemd/system/.d",
            "/etc/systemd/system/multi-user.target.wants",
            "/etc/systemd/system/ssh.service.d/x.d",
            "/etc/systemd/x.d",
            "/etc/cron.d",
        ] {
            assert!(!is_drop_in_folder(path.as_bytes()), "{path}");
        }
    }
}

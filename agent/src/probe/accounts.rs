//! Local accounts from `/etc/passwd` (passwd(5)) and `/etc/group` (group(5)), without NSS: the agent is static, and a
//! directory server's accounts are no part of a baseline.

use manifest::{Group, User};

/// Accounts in the order of the file.
///
/// # Errors
/// The first line that is no account.
pub fn parse_users(text: &str) -> Result<Vec<User>, String> {
    let user = |(at, line): (usize, &str)| {
        let fields: Vec<_> = line.split(':').collect();
        let (&[name, _, uid, gid, _, home, shell], true) = (fields.as_slice(), !line.is_empty()) else {
            return Err(format!("/etc/passwd line {}: expected seven fields", at + 1));
        };
        let number = |text: &str| {
            text.parse()
                .map_err(|_| format!("/etc/passwd line {}: expected a number", at + 1))
        };
        Ok(User {
            name: name.to_owned(),
            uid: number(uid)?,
            gid: number(gid)?,
            home: home.to_owned(),
            shell: shell.to_owned(),
        })
    };
    text.lines().enumerate().map(user).collect()
}

/// Groups in the order of the file, members sorted.
///
/// # Errors
/// The first line that is no group.
pub fn parse_groups(text: &str) -> Result<Vec<Group>, String> {
    let group = |(at, line): (usize, &str)| {
        let fields: Vec<_> = line.split(':').collect();
        let &[name, _, gid, members] = fields.as_slice() else {
            return Err(format!("/etc/group line {}: expected four fields", at + 1));
        };
        let gid = gid
            .parse()
            .map_err(|_| format!("/etc/group line {}: expected a number", at + 1))?;
        let mut members: Vec<_> = members
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        members.sort();
        Ok(Group {
            name: name.to_owned(),
            gid,
            members,
        })
    };
    text.lines().enumerate().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read_or_refused_with_their_line() {
        let users = parse_users("root:x:0:0:root:/root:/bin/bash\nevil:x:0:0::/:\n").unwrap();
        assert_eq!(
            (users[1].name.as_str(), users[1].uid, users[1].shell.as_str()),
            ("evil", 0, "")
        );
        assert!(
            parse_users("root:x:0:0:root:/root:/bin/sh\n\n")
                .unwrap_err()
                .contains("line 2")
        );
        assert!(
            parse_users("root:x:-1:0:root:/root:/bin/sh\n")
                .unwrap_err()
                .contains("number")
        );
        let groups = parse_groups("sudo:x:27:zoe,adam\nroot:x:0:\n").unwrap();
        assert_eq!(groups[0].members, ["adam", "zoe"]);
        assert!(parse_groups("+:::\nx:y").is_err());
    }
}

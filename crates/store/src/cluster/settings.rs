//! The files that configure the cluster, as text. They are written anew at each start, so that a newer server's
//! settings reach an older cluster.

use std::path::Path;

use super::ROLE;

/// The file that `postgresql.conf` includes.
pub(super) const SETTINGS_FILE: &str = "plumbline.conf";

/// The line at the end of `postgresql.conf`.
pub(super) const INCLUDE_LINE: &str = "\ninclude = 'plumbline.conf'\n";

/// `plumbline.conf`. The folder of the socket holds no byte that would need quoting (see `layout`).
pub(super) fn settings(socket_folder: &Path) -> String {
    format!(
        "# Written by Plumbline at each start: changes here are lost. Settings of your own go through ALTER SYSTEM.\n\
         listen_addresses = ''\n\
         port = 5432\n\
         unix_socket_directories = '{}'\n\
         unix_socket_permissions = 0700\n\
         max_connections = 50\n\
         shared_buffers = 64MB\n\
         fsync = on\n\
         full_page_writes = on\n\
         synchronous_commit = on\n\
         log_destination = 'stderr'\n\
         logging_collector = off\n\
         log_line_prefix = '%m [%p] '\n\
         log_timezone = 'UTC'\n\
         timezone = 'UTC'\n\
         lc_messages = 'C'\n",
        socket_folder.display()
    )
}

/// `pg_hba.conf`: the kernel says who is at the other end of the socket; nobody comes any other way.
pub(super) fn host_based_authentication() -> &'static str {
    "# Written by Plumbline at each start.\nlocal all all peer map=plumbline\n"
}

/// `pg_ident.conf`: root, the service account and the server's account are the owner of the cluster.
pub(super) fn identities(account_name: &str) -> String {
    let mut names = vec!["root", "postgres"];
    if !names.contains(&account_name) {
        names.push(account_name);
    }
    let mut text = "# Written by Plumbline at each start.\n".to_owned();
    for name in names {
        // Quoted: an account of a directory service may hold blanks, and a leading slash would mean a pattern.
        text.push_str(&format!("plumbline \"{name}\" {ROLE}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_mapped_once() {
        assert_eq!(identities("postgres").matches("\"postgres\"").count(), 1);
        assert!(identities("svc plumb").contains("plumbline \"svc plumb\" plumbline\n"));
    }
}

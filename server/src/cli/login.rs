//! The saved login: `~/.config/plumbline/login.json`, mode 0600.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::client::{Client, server_normal};

/// Where a server listens that was not told otherwise.
pub const SERVER_DEFAULT: &str = "http://127.0.0.1:8080";

/// A login that was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// The server it is for.
    pub server: String,
    /// Who.
    pub name: String,
    /// The session's token.
    pub token: String,
    /// When it ends, as the server wrote it.
    pub expires_at: String,
}

/// Where the login is kept.
///
/// # Errors
/// There is no home folder.
pub fn login_path() -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))
        .context("neither HOME nor XDG_CONFIG_HOME is set: the login has no place (PLUMBLINE_TOKEN works without)")?;
    Ok(folder.join("plumbline/login.json"))
}

impl Login {
    /// The saved login, if there is one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(path: &Path) -> anyhow::Result<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("reading {}", path.display()))?,
        };
        let login = serde_json::from_str(&text);
        Ok(Some(login.with_context(|| {
            format!("{} is damaged: run `plumbline login`", path.display())
        })?))
    }

    /// Saves it: complete or not at all, and for nobody else's eyes from the first moment.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let folder = path.parent().context("the login has no folder")?;
        let failed = || format!("writing {}", path.display());
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(failed)?;
        let mut file = tempfile::Builder::new()
            .permissions(std::fs::Permissions::from_mode(0o600))
            .tempfile_in(folder)
            .with_context(failed)?;
        file.write_all(&serde_json::to_vec_pretty(self)?).with_context(failed)?;
        file.persist(path).with_context(failed)?;
        Ok(())
    }
}

/// The server to ask, and the token for it: an explicit one, or the saved one when it is this server's. A saved token
/// is never sent to another server.
///
/// # Errors
/// The server is no URL.
pub fn choose(
    server: Option<&str>,
    token: Option<String>,
    saved: Option<&Login>,
) -> anyhow::Result<(String, Option<String>)> {
    let server = server
        .or(saved.map(|login| login.server.as_str()))
        .unwrap_or(SERVER_DEFAULT);
    let server = server_normal(server)?;
    let saved = saved.filter(|login| server_normal(&login.server).is_ok_and(|own| own == server));
    let token = token.or_else(|| saved.map(|login| login.token.clone()));
    Ok((server, token))
}

/// A client by the command line, the environment, and the saved login.
///
/// # Errors
/// As [`choose`], or the saved login cannot be read.
pub fn client(server: Option<&str>) -> anyhow::Result<Client> {
    let token = std::env::var("PLUMBLINE_TOKEN").ok().filter(|token| !token.is_empty());
    let saved = match (&token, login_path()) {
        // Whoever brings both needs no file.
        (Some(_), _) if server.is_some() => None,
        (_, Ok(path)) => Login::load(&path)?,
        (Some(_), Err(_)) => None,
        (None, Err(error)) => return Err(error),
    };
    let (server, token) = choose(server, token, saved.as_ref())?;
    Client::new(&server, token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> Login {
        Login {
            server: "http://10.0.0.1:8080".to_owned(),
            name: "admin".to_owned(),
            token: "secret".to_owned(),
            expires_at: "2026-01-02T03:04:05Z".to_owned(),
        }
    }

    #[test]
    fn a_saved_token_goes_to_its_own_server_only() {
        let saved = login();
        let own = ("http://10.0.0.1:8080".to_owned(), Some("secret".to_owned()));
        assert_eq!(choose(None, None, Some(&saved)).unwrap(), own);
        assert_eq!(choose(Some("10.0.0.1:8080/"), None, Some(&saved)).unwrap(), own);
        for other in ["https://10.0.0.1:8080", "http://10.0.0.1", "http://10.0.0.2:8080"] {
            assert_eq!(choose(Some(other), None, Some(&saved)).unwrap().1, None, "{other}");
        }
        let explicit = choose(Some("10.0.0.2"), Some("own".to_owned()), Some(&saved)).unwrap();
        assert_eq!(explicit.1.as_deref(), Some("own"));
        assert_eq!(choose(None, None, None).unwrap().0, SERVER_DEFAULT);
    }

    #[test]
    fn a_login_is_saved_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config/plumbline/login.json");
        assert_eq!(Login::load(&path).unwrap(), None);
        login().save(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        login().save(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(Login::load(&path).unwrap(), Some(login()));
    }
}

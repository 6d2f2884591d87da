//! The site's key for kernel modules that the distribution did not sign (DKMS, vendors' drivers).
//!
//! An X.509 certificate and its RSA key beside the other keys: `module.key` (PEM, mode 0600), `module.pem`, and
//! `module.der`, which is what people enrol (`mokutil --import module.der`, or the firmware's db). The certificate is for
//! module signing alone (1.3.6.1.4.1.2312.16.1.2): shim starts no boot loader that it signed. A site that has a key of
//! its own puts these three files there before the first build.
//!
//! Signing is what the kernel's `scripts/sign-file` does: a detached PKCS #7 signature without attributes, then
//! `struct module_signature` and a closing line (Linux, Documentation/admin-guide/module-signing.rst). openssl makes it,
//! on the build machine: the key is never inside an image's tree.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What ends a signed module.
const MAGIC: &[u8] = b"~Module signature appended~\n";
/// `PKEY_ID_PKCS7` of `struct module_signature`.
const PKCS7: u8 = 2;
/// Bytes of `struct module_signature`: algorithm, hash, kind, two lengths, three of padding, length of the signature.
const TRAILER_BYTES: usize = 12;
/// Largest signature, in bytes; one without certificates has less than a thousand.
const SIGNATURE_BYTES_MAX: u64 = 64 << 10;

/// What openssl is told of the certificate.
const REQUEST: &str = "[req]\ndistinguished_name = dn\nprompt = no\nx509_extensions = ext\n\
    [dn]\nCN = Plumbline module signing key\n\
    [ext]\nbasicConstraints = critical,CA:FALSE\nkeyUsage = digitalSignature\n\
    extendedKeyUsage = codeSigning,1.3.6.1.4.1.2312.16.1.2\nsubjectKeyIdentifier = hash\nauthorityKeyIdentifier = keyid\n";

/// A module key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleKeyError {
    /// Reading or writing failed.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Others may read the secret key.
    #[error("key file {}: mode {mode:04o} lets others read it, expected 0600", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Only some of the three files are there.
    #[error("{}: expected module.key, module.pem and module.der together", path.display())]
    Incomplete {
        /// The file that is missing.
        path: PathBuf,
    },
    /// openssl failed.
    #[error("openssl failed to {what}: {said}")]
    OpenSsl {
        /// What it was to do.
        what: &'static str,
        /// What it said.
        said: String,
    },
}

/// The key, by its files.
#[derive(Clone, Debug)]
pub struct ModuleKey {
    key: PathBuf,
    certificate: PathBuf,
    certificate_der: PathBuf,
}

impl ModuleKey {
    /// The key in this folder; made when there is none.
    ///
    /// # Errors
    /// [`ModuleKeyError`].
    pub fn load_or_create(dir: &Path) -> Result<Self, ModuleKeyError> {
        let [key, certificate, certificate_der] = ["module.key", "module.pem", "module.der"].map(|name| dir.join(name));
        let files = [&key, &certificate, &certificate_der];
        if files.iter().all(|file| !file.exists()) {
            create(dir, &files)?;
        }
        if let Some(missing) = files.iter().find(|file| !file.exists()) {
            let path = (*missing).clone();
            return Err(ModuleKeyError::Incomplete { path });
        }
        let mode = std::fs::metadata(&key).map_err(io(&key))?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(ModuleKeyError::Mode { path: key, mode });
        }
        Ok(Self {
            key,
            certificate,
            certificate_der,
        })
    }

    /// The certificate in DER, as people enrol it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn certificate_der(&self) -> Result<Vec<u8>, ModuleKeyError> {
        std::fs::read(&self.certificate_der).map_err(io(&self.certificate_der))
    }

    /// Signs an uncompressed module in place, in the place of whatever signature it has.
    ///
    /// # Errors
    /// [`ModuleKeyError`]; the module may lack its old signature then.
    pub fn sign(&self, module: &Path) -> Result<(), ModuleKeyError> {
        strip(module).map_err(io(module))?;
        let arguments = "cms -sign -binary -noattr -nocerts -nosmimecap -md sha256 -outform DER";
        let mut openssl = openssl(arguments);
        openssl.arg("-signer").arg(&self.certificate);
        openssl.arg("-inkey").arg(&self.key);
        openssl.arg("-in").arg(module);
        let signature = run(openssl, "sign a module")?;
        append(module, &signature).map_err(io(module))
    }
}

/// Whether a module carries a signature, whosever it is.
///
/// # Errors
/// When it cannot be read.
pub fn is_signed(module: &Path) -> std::io::Result<bool> {
    Ok(signature_start(&mut File::open(module)?)?.is_some())
}

/// Where the signature begins; `None` when there is none, or none that could be one.
fn signature_start(file: &mut File) -> std::io::Result<Option<u64>> {
    let tail_bytes = (TRAILER_BYTES + MAGIC.len()) as u64;
    let bytes = file.metadata()?.len();
    if bytes < tail_bytes {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(bytes - tail_bytes))?;
    let mut tail = [0; TRAILER_BYTES + MAGIC.len()];
    file.read_exact(&mut tail)?;
    let (trailer, magic) = tail.split_at(TRAILER_BYTES);
    if magic != MAGIC {
        return Ok(None);
    }
    let length = trailer[8..]
        .iter()
        .fold(0, |length, &byte| length << 8 | u64::from(byte));
    Ok((length <= SIGNATURE_BYTES_MAX)
        .then(|| (bytes - tail_bytes).checked_sub(length))
        .flatten())
}

fn strip(module: &Path) -> std::io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(module)?;
    match signature_start(&mut file)? {
        Some(start) => file.set_len(start),
        None => Ok(()),
    }
}

fn append(module: &Path, signature: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(signature.len()).map_err(std::io::Error::other)?;
    let mut file = OpenOptions::new().append(true).open(module)?;
    let trailer = [&[0, 0, PKCS7, 0, 0, 0, 0, 0], length.to_be_bytes().as_slice(), MAGIC].concat();
    file.write_all(&[signature, &trailer].concat())
}

/// Makes a key. Its files appear complete; the secret one first, so that none is ever without it.
fn create(dir: &Path, files: &[&PathBuf; 3]) -> Result<(), ModuleKeyError> {
    let folder = tempfile::tempdir_in(dir).map_err(io(dir))?;
    let [request, key, certificate, der] = ["request", "key", "pem", "der"].map(|name| folder.path().join(name));
    std::fs::write(&request, REQUEST).map_err(io(&request))?;
    let mut make = openssl("req -new -x509 -newkey rsa:3072 -nodes -sha256 -days 36500 -batch -config");
    make.arg(&request)
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate);
    run(make, "make a key")?;
    let mut convert = openssl("x509 -outform DER -in");
    convert.arg(&certificate).arg("-out").arg(&der);
    run(convert, "write a certificate")?;
    for (made, (file, mode)) in [&key, &certificate, &der]
        .into_iter()
        .zip(files.iter().zip([0o600, 0o644, 0o644]))
    {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(made, permissions).map_err(io(made))?;
        std::fs::rename(made, file).map_err(io(file))?;
    }
    tracing::info!(key.path = %files[0].display(), "made a key for kernel modules");
    Ok(())
}

fn openssl(arguments: &str) -> Command {
    let mut command = Command::new("openssl");
    command
        .args(arguments.split(' '))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C.UTF-8");
    command
}

/// Its standard output.
fn run(mut command: Command, what: &'static str) -> Result<Vec<u8>, ModuleKeyError> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| ModuleKeyError::OpenSsl {
        what,
        said: format!("{error} (Debian package openssl)"),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr)
        .trim()
        .chars()
        .take(500)
        .collect();
    Err(ModuleKeyError::OpenSsl { what, said })
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> ModuleKeyError + '_ {
    |source| ModuleKeyError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What openssl says of a module's signature under a certificate.
    fn verify(module: &Path, certificate: &Path) -> bool {
        let mut file = File::open(module).unwrap();
        let start = usize::try_from(signature_start(&mut file).unwrap().unwrap()).unwrap();
        let bytes = std::fs::read(module).unwrap();
        let end = bytes.len() - TRAILER_BYTES - MAGIC.len();
        let folder = tempfile::tempdir().unwrap();
        let [content, signature] = ["content", "signature"].map(|name| folder.path().join(name));
        std::fs::write(&content, &bytes[..start]).unwrap();
        std::fs::write(&signature, &bytes[start..end]).unwrap();
        let mut verify = openssl("cms -verify -binary -noverify -inform DER -out /dev/null -in");
        verify.arg(&signature).arg("-content").arg(&content);
        verify.arg("-certfile").arg(certificate);
        run(verify, "verify").is_ok()
    }

    #[test]
    fn a_module_is_signed_once_with_the_sites_key() {
        let folder = tempfile::tempdir().unwrap();
        let key = ModuleKey::load_or_create(folder.path()).unwrap();
        let module = folder.path().join("x.ko");
        std::fs::write(&module, b"\x7fELF and the rest\n").unwrap();
        assert!(!is_signed(&module).unwrap());
        key.sign(&module).unwrap();
        let once = std::fs::read(&module).unwrap();
        assert!(once.starts_with(b"\x7fELF and the rest\n") && once.ends_with(MAGIC));
        assert!(is_signed(&module).unwrap() && verify(&module, &key.certificate));
        key.sign(&module).unwrap();
        assert_eq!(std::fs::read(&module).unwrap(), once, "again is the same file");

        let other = tempfile::tempdir().unwrap();
        let other = ModuleKey::load_or_create(other.path()).unwrap();
        assert!(!verify(&module, &other.certificate));
    }

    #[test]
    fn the_key_is_made_once_and_read_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let first = ModuleKey::load_or_create(folder.path())
            .unwrap()
            .certificate_der()
            .unwrap();
        let second = ModuleKey::load_or_create(folder.path())
            .unwrap()
            .certificate_der()
            .unwrap();
        assert_eq!(first, second);
        let key = folder.path().join("module.key");
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o7777, 0o600);
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = ModuleKey::load_or_create(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("module.key") && error.contains("expected 0600"),
            "{error}"
        );
        std::fs::remove_file(&key).unwrap();
        let error = ModuleKey::load_or_create(folder.path()).unwrap_err().to_string();
        assert!(error.contains("module.key: expected"), "{error}");
    }

    #[test]
    fn what_only_looks_like_a_signature_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("x.ko");
        for content in [b"short".to_vec(), [b"\xff".repeat(12).as_slice(), MAGIC].concat()] {
            std::fs::write(&module, content).unwrap();
            assert!(!is_signed(&module).unwrap());
        }
    }
}

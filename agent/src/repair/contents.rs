//! Where the contents of the baseline come from.

use std::io::Write;

use manifest::{Digest, FileContent, Hasher};
use protocol::latest::paths;
use tokio::runtime::Handle;

use crate::api::Api;

/// Gives contents by digest. Blocks.
pub trait ContentSource {
    /// Writes the content to `to`; whoever asks checks it.
    ///
    /// # Errors
    /// Why it is not to be had, for people.
    fn fetch(&self, digest: &Digest, to: &mut dyn Write) -> Result<(), String>;
}

/// From the server, as this node.
#[derive(Clone, Debug)]
pub struct HttpContents {
    api: Api,
    runtime: Handle,
}

impl HttpContents {
    /// Requests run on `runtime`, which some other thread must be driving.
    #[must_use]
    pub const fn new(api: Api, runtime: Handle) -> Self {
        Self { api, runtime }
    }
}

impl ContentSource for HttpContents {
    fn fetch(&self, digest: &Digest, to: &mut dyn Write) -> Result<(), String> {
        let path = format!("{}/{digest}", paths::CONTENTS);
        self.runtime.block_on(async {
            let failed = |error: &(dyn std::error::Error + 'static)| crate::deploy::chain(error);
            let mut response = self
                .api
                .get_stream(&path, 0, None)
                .await
                .map_err(|error| failed(&error))?;
            while let Some(piece) = response.chunk().await.map_err(|error| failed(&error))? {
                to.write_all(&piece).map_err(|error| failed(&error))?;
            }
            Ok(())
        })
    }
}

/// Writes a content and refuses any other: longer, shorter, or with another digest.
pub(super) fn fetch_checked(
    source: &dyn ContentSource,
    content: &FileContent,
    to: &mut dyn Write,
) -> Result<(), String> {
    let mut checked = Checked {
        to,
        left: content.size,
        hasher: Hasher::new(),
    };
    if content.size > 0 {
        source.fetch(&content.digest, &mut checked)?;
    }
    let (left, found) = (checked.left, checked.hasher.finish());
    if left > 0 {
        return Err(format!("the server's content ends {left} bytes early"));
    }
    if found != content.digest {
        return Err(format!(
            "the server's content has the digest {found}, expected {}",
            content.digest
        ));
    }
    Ok(())
}

struct Checked<'a> {
    to: &'a mut dyn Write,
    left: u64,
    hasher: Hasher,
}

impl Write for Checked<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let length = bytes.len() as u64;
        if length > self.left {
            return Err(std::io::Error::other("the content is longer than the baseline says"));
        }
        self.to.write_all(bytes)?;
        self.hasher.update(bytes);
        self.left -= length;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(&'static [u8]);

    impl ContentSource for Fixed {
        fn fetch(&self, _: &Digest, to: &mut dyn Write) -> Result<(), String> {
            to.write_all(self.0).map_err(|error| error.to_string())
        }
    }

    #[test]
    fn only_the_content_that_was_asked_for_is_taken() {
        let content = FileContent {
            size: 3,
            digest: Digest::of(b"abc"),
        };
        let fetch = |bytes| {
            let mut to = Vec::new();
            fetch_checked(&Fixed(bytes), &content, &mut to).map(|()| to)
        };
        assert_eq!(fetch(b"abc"), Ok(b"abc".to_vec()));
        for (bytes, expected) in [
            (b"abd".as_slice(), "digest"),
            (b"ab", "1 bytes early"),
            (b"abcd", "longer"),
        ] {
            let error = fetch(bytes).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}

//! From a file or blob to the bytes of its tar archive.
//!
//! The format is told by its first bytes, not by a name or media type: those are wrong in practice, and container
//! engines go by the bytes too. A decoder gets at most 128 MiB of memory: enough for everything that `xz -9` and
//! `zstd --ultra -22` write.

use std::io::{self, BufRead, BufReader, Read};

use crate::ImportError;

const XZ_MEMORY_KIB_MAX: u32 = 128 << 10;
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Plain,
    Gzip,
    Zstd,
    Xz,
    /// Known, and not read; with what to do.
    Refused(&'static str),
}

impl Format {
    /// Tells a format by the first bytes; 512 are enough.
    pub(crate) fn of(head: &[u8]) -> Self {
        const REFUSED: [(&[u8], &str); 8] = [
            (b"BZh", "bzip2 is not read: pack it as gzip, zstd or xz"),
            (b"\x04\x22\x4d\x18", "lz4 is not read: pack it as gzip, zstd or xz"),
            (b"LZIP", "lzip is not read: pack it as gzip, zstd or xz"),
            (b"PK\x03\x04", "this is a zip archive; expected a tar archive"),
            (
                b"hsqs",
                "this is a squashfs image: unpack it with unsquashfs and give the folder",
            ),
            (b"QFI\xfb", "this is a qcow2 disk image: mount it and give the folder"),
            (b"KDMV", "this is a VMDK disk image: mount it and give the folder"),
            (b"070701", "this is a cpio archive; expected a tar archive"),
        ];
        if let Some((_, why)) = REFUSED.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Self::Refused(why);
        }
        if head.starts_with(b"\x1f\x8b") {
            Self::Gzip
        } else if head.starts_with(b"\x28\xb5\x2f\xfd") {
            Self::Zstd
        } else if head.starts_with(b"\xfd7zXZ\0") {
            Self::Xz
        } else if head.len() >= 512 && head[510..512] == [0x55, 0xaa] {
            Self::Refused("this is a disk image: mount it and give the folder")
        } else {
            Self::Plain
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain | Self::Refused(_) => "tar",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
        }
    }
}

/// Reads up to 512 bytes and gives them back to the stream.
pub(crate) fn peek<R: Read>(mut source: R) -> io::Result<(Vec<u8>, impl Read)> {
    let mut head = Vec::with_capacity(512);
    source.by_ref().take(512).read_to_end(&mut head)?;
    Ok((head.clone(), io::Cursor::new(head).chain(source)))
}

/// The uncompressed archive behind `source`, and its format.
pub(crate) fn decoder<'a>(
    source: Box<dyn Read + 'a>,
    archive: &str,
) -> Result<(Format, Box<dyn Read + 'a>), ImportError> {
    let io = |error| ImportError::io("read", archive)(error);
    let (head, source) = peek(source).map_err(io)?;
    let format = Format::of(&head);
    let decoder: Box<dyn Read + 'a> = match format {
        Format::Plain => Box::new(source),
        Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered(source))),
        Format::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered(source)).map_err(io)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(io)?;
            Box::new(decoder)
        }
        Format::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(
            buffered(source),
            true,
            XZ_MEMORY_KIB_MAX,
        )),
        Format::Refused(why) => {
            return Err(ImportError::Archive {
                archive: archive.to_owned(),
                offset: 0,
                problem: why.to_owned(),
            });
        }
    };
    Ok((format, decoder))
}

fn buffered(source: impl Read) -> impl BufRead {
    BufReader::with_capacity(128 << 10, source)
}

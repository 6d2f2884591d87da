//! Files of a layout: in a folder, or in a tar archive that is read in place.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use sha2::{Digest as _, Sha256};

use super::Descriptor;
use crate::archive::{Kind, Reader};
use crate::compression::{self, Format};
use crate::error::escape;
use crate::name::{components, join};
use crate::progress::Meter;
use crate::{EntryProblem, ImportError, Limits};

/// Most links from name to name in an archive of `docker save`.
const LINKS_MAX: usize = 8;

/// Files of an image.
pub(crate) enum Blobs {
    /// A folder.
    Folder {
        /// Its handle.
        folder: OwnedFd,
        /// Its path, for errors.
        path: PathBuf,
    },
    /// An archive.
    Archive {
        /// The archive, uncompressed.
        file: File,
        /// Its path, for errors.
        path: PathBuf,
        /// Where its files are.
        members: HashMap<Vec<u8>, Member>,
    },
}

/// A file in an archive.
#[derive(Debug)]
pub(crate) enum Member {
    Data {
        offset: u64,
        bytes: u64,
    },
    /// Older `docker save` writes a layer that two images share once, and a link beside the second.
    Link(Vec<u8>),
}

impl Blobs {
    pub(crate) fn folder(path: &Path) -> Result<Self, ImportError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())
            .map_err(ImportError::errno("open", path.display().to_string()))?;
        Ok(Self::Folder {
            folder,
            path: path.to_owned(),
        })
    }

    /// Lists a tar archive. A compressed one is unpacked into a nameless file in `scratch` first, since its files are
    /// read in an order of their own.
    pub(crate) fn archive(path: &Path, scratch: &Path, limits: &Limits) -> Result<Self, ImportError> {
        let text = path.display().to_string();
        let mut file = File::open(path).map_err(ImportError::io("open", text.clone()))?;
        let (format, mut stream) = compression::decoder(Box::new(&file), &text)?;
        if format != Format::Plain {
            let mut plain = tempfile::tempfile_in(scratch).map_err(ImportError::io("create a file beside", &*text))?;
            let limit = limits.stream_bytes_max();
            let copied = std::io::copy(&mut stream.by_ref().take(limit + 1), &mut plain);
            let copied = copied.map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => ImportError::Truncated {
                    archive: text.clone(),
                    offset: 0,
                },
                _ => ImportError::io("unpack", text.clone())(error),
            })?;
            if copied > limit {
                return Err(ImportError::Limit {
                    what: "the uncompressed archive",
                    place: text,
                    found: copied,
                    limit,
                });
            }
            drop(stream);
            file = plain;
        } else {
            drop(stream);
        }
        let members = members(&file, &text, limits)?;
        Ok(Self::Archive {
            file,
            path: path.to_owned(),
            members,
        })
    }

    /// The source's path.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Folder { path, .. } | Self::Archive { path, .. } => path.display().to_string(),
        }
    }

    /// Whether there is such a file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.open(name).is_ok()
    }

    /// Opens a file and says its size.
    pub(crate) fn open(&self, name: &str) -> Result<(Box<dyn Read + '_>, u64), ImportError> {
        let absent = || ImportError::Absent {
            name: name.to_owned(),
            source_name: self.place(),
        };
        match self {
            Self::Folder { folder, .. } => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                let file = rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve).map_err(|errno| {
                    if errno == rustix::io::Errno::NOENT {
                        absent()
                    } else {
                        ImportError::errno("open", format!("{name} in {}", self.place()))(errno)
                    }
                })?;
                let stat = rustix::fs::fstat(&file).map_err(ImportError::errno("look at", name))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    return Err(ImportError::Source {
                        path: name.into(),
                        problem: format!("no regular file in {}", self.place()),
                    });
                }
                Ok((Box::new(File::from(file)), u64::try_from(stat.st_size).unwrap_or(0)))
            }
            Self::Archive { file, members, .. } => {
                let mut name = name.as_bytes();
                for _ in 0..LINKS_MAX {
                    match members.get(name) {
                        Some(&Member::Data { offset, bytes }) => {
                            let section = Section {
                                file,
                                at: offset,
                                end: offset + bytes,
                            };
                            return Ok((Box::new(section), bytes));
                        }
                        Some(Member::Link(target)) => name = target,
                        None => break,
                    }
                }
                Err(absent())
            }
        }
    }

    /// A whole document.
    pub(crate) fn document(&self, name: &str, limits: &Limits) -> Result<Vec<u8>, ImportError> {
        let (stream, bytes) = self.open(name)?;
        let limit = limits.document_bytes_max;
        let over = |found| ImportError::Limit {
            what: "bytes of a document",
            place: format!("{name} in {}", self.place()),
            found,
            limit,
        };
        if bytes > limit {
            return Err(over(bytes));
        }
        let mut document = Vec::new();
        stream
            .take(limit + 1)
            .read_to_end(&mut document)
            .map_err(ImportError::io("read", format!("{name} in {}", self.place())))?;
        if document.len() as u64 > limit {
            return Err(over(document.len() as u64));
        }
        Ok(document)
    }

    /// A document that a descriptor vouches for.
    pub(crate) fn checked_document(&self, descriptor: &Descriptor, limits: &Limits) -> Result<Vec<u8>, ImportError> {
        descriptor.check()?;
        let document = self.document(&descriptor.file(), limits)?;
        if document.len() as u64 != descriptor.size {
            return Err(ImportError::Size {
                blob: descriptor.file(),
                expected: descriptor.size,
                found: document.len() as u64,
            });
        }
        let found = digest_of(&document);
        if found != descriptor.digest {
            return Err(ImportError::Digest {
                blob: descriptor.file(),
                expected: descriptor.digest.clone(),
                found,
            });
        }
        Ok(document)
    }

    /// Checks size and digest of a blob.
    pub(crate) fn verify(
        &self,
        name: &str,
        descriptor: &Descriptor,
        meter: Option<&mut Meter<'_>>,
    ) -> Result<(), ImportError> {
        let (stream, bytes) = self.open(name)?;
        if bytes != descriptor.size {
            return Err(ImportError::Size {
                blob: name.to_owned(),
                expected: descriptor.size,
                found: bytes,
            });
        }
        let found = hash(stream, name, meter)?;
        if found != descriptor.digest {
            return Err(ImportError::Digest {
                blob: name.to_owned(),
                expected: descriptor.digest.clone(),
                found,
            });
        }
        Ok(())
    }
}

/// Digest of bytes, as images write it.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Digest of a stream.
pub(crate) fn hash(
    mut stream: impl Read,
    name: &str,
    mut meter: Option<&mut Meter<'_>>,
) -> Result<String, ImportError> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(format!("sha256:{}", hex::encode(hasher.finalize()))),
            Ok(got) => {
                hasher.update(&buffer[..got]);
                if let Some(meter) = &mut meter {
                    meter.bytes(got as u64)?;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ImportError::io("read", name)(error)),
        }
    }
}

fn members(file: &File, text: &str, limits: &Limits) -> Result<HashMap<Vec<u8>, Member>, ImportError> {
    let end = file.metadata().map_err(ImportError::io("look at", text))?.len();
    let mut reader = Reader::new(Section { file, at: 0, end }, text, "tar", limits);
    let mut members = HashMap::new();
    while let Some(entry) = reader.next()? {
        let refuse = |problem| ImportError::Entry {
            archive: text.to_owned(),
            path: escape(&entry.name),
            problem,
        };
        if members.len() as u64 >= limits.entries_max {
            return Err(ImportError::Limit {
                what: "entries",
                place: text.to_owned(),
                found: members.len() as u64 + 1,
                limit: limits.entries_max,
            });
        }
        let path = components(&entry.name, limits.depth_max).map_err(refuse)?;
        let name = path.join(&b'/');
        let member = match &entry.kind {
            Kind::File if entry.segments.is_some() => return Err(refuse(EntryProblem::Sparse("not here".to_owned()))),
            Kind::File => Member::Data {
                offset: reader.offset(),
                bytes: reader.left(),
            },
            Kind::Link(target) => Member::Link(components(target, limits.depth_max).map_err(refuse)?.join(&b'/')),
            Kind::Symlink(target) => {
                let folder = path.split_last().map_or(&[] as &[&[u8]], |(_, folder)| folder);
                Member::Link(lexical(folder, target).ok_or_else(|| refuse(EntryProblem::Climbs))?)
            }
            _ => continue,
        };
        members.insert(name, member);
    }
    Ok(members)
}

/// The name that a relative link in `folder` means, by its text alone.
fn lexical(folder: &[&[u8]], target: &[u8]) -> Option<Vec<u8>> {
    if target.starts_with(b"/") {
        return None;
    }
    let mut stack = folder.to_vec();
    for component in target.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => {
                stack.pop()?;
            }
            component => stack.push(component),
        }
    }
    Some(stack.iter().fold(Vec::new(), |path, component| join(&path, component)))
}

/// A part of a file.
struct Section<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let want = usize::try_from(self.end - self.at).map_or(buffer.len(), |left| left.min(buffer.len()));
        let got = self.file.read_at(&mut buffer[..want], self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

//! Packs over HTTP from a server that breaks off.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use manifest::packs::Part;
use plumbline_agent::api::Api;
use plumbline_agent::deploy::{HttpPacks, PackSource, Tracker};
use plumbline_agent::ramdisk::Console;

use super::image::{Packs, noise, packed};

type Reply = Box<dyn FnMut(&mut TcpStream) + Send>;

/// Answers each connection with one of the replies, in order; what was asked comes out of the receiver.
fn server(mut replies: Vec<Reply>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for reply in &mut replies {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") && reader.read_line(&mut request).unwrap() > 0 {}
            sender.send(request).unwrap();
            reply(&mut stream);
        }
    });
    (base, receiver)
}

fn reply(status: &'static str, length: usize, body: Vec<u8>) -> Reply {
    Box::new(move |stream| {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
    })
}

fn read_through(base: &str, again: u32) -> (std::io::Result<Vec<u8>>, u64) {
    let (index, _) = packed(&[&noise(300_000, 9)]);
    let part = index.whole_parts().remove(0);
    read_part(base, &part, again)
}

fn read_part(base: &str, part: &Part<'_>, again: u32) -> (std::io::Result<Vec<u8>>, u64) {
    let part = Part {
        info: std::borrow::Cow::Owned(part.info.as_ref().clone()),
        ..*part
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let tracker = Tracker::new(Console::silent());
    let source = HttpPacks::new(Api::plain(base).unwrap(), runtime.handle().clone(), tracker.clone());
    let result = runtime.block_on(async {
        let work = move || {
            let mut bytes = Vec::new();
            source.open(&part, again).read_to_end(&mut bytes).map(|_| bytes)
        };
        tokio::task::spawn_blocking(work).await.unwrap()
    });
    (result, tracker.requests())
}

fn pack_bytes() -> Vec<u8> {
    let (index, packs) = packed(&[&noise(300_000, 9)]);
    packs[&index.packs[0].digest].clone()
}

#[test]
fn a_fetch_that_breaks_off_goes_on_where_it_stopped() {
    let whole = pack_bytes();
    let half = whole.len() / 2;
    let (base, asked) = server(vec![
        reply("200 OK", whole.len(), whole[..half].to_vec()),
        reply("206 Partial Content", whole.len() - half, whole[half..].to_vec()),
    ]);
    let (bytes, requests) = read_through(&base, 0);
    assert_eq!(bytes.unwrap(), whole);
    assert_eq!(requests, 2);
    assert!(!asked.recv().unwrap().contains("range:"));
    let second = asked.recv().unwrap();
    assert!(second.contains(&format!("range: bytes={half}-")), "{second}");
}

#[test]
fn a_server_without_ranges_is_read_from_the_beginning() {
    let whole = pack_bytes();
    let (base, asked) = server(vec![
        reply("200 OK", whole.len(), whole[..1000].to_vec()),
        reply("200 OK", whole.len(), whole.clone()),
    ]);
    let (bytes, _) = read_through(&base, 1);
    assert_eq!(bytes.unwrap(), whole);
    assert!(
        asked.recv().unwrap().contains("?again=1"),
        "a cache between must not answer with the same damage"
    );
}

#[test]
fn a_refusal_is_an_error_at_once_and_too_much_is_cut() {
    let (base, _asked) = server(vec![reply("404 Not Found", 4, b"gone".to_vec())]);
    let (bytes, requests) = read_through(&base, 0);
    let error = bytes.unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("gone"), "{error}");
    assert_eq!(requests, 1);

    let mut longer = pack_bytes();
    longer.extend_from_slice(&[0; 5000]);
    let (base, _asked) = server(vec![reply("200 OK", longer.len(), longer)]);
    assert_eq!(read_through(&base, 0).0.unwrap(), pack_bytes());
}

/// Three frames, of which the second is wanted.
fn middle() -> (Vec<u8>, Packs, manifest::packs::PackIndex) {
    let contents = [noise(1 << 20, 1), noise(1 << 20, 2), noise(1 << 20, 3)];
    let (index, packs) = packed(&[&contents[0], &contents[1], &contents[2]]);
    (contents[1].clone(), packs, index)
}

#[test]
fn a_part_is_asked_for_by_its_range_and_goes_on_within_it() {
    let (content, packs, index) = middle();
    let blob = manifest::Digest::of(&content);
    let part = index.parts(|digest| *digest == blob, 10).remove(0);
    let whole = &packs[&part.info.digest];
    let (from, size) = (part.offset as usize, part.info.size as usize);
    let expected = &whole[from..from + size];
    let (base, asked) = server(vec![
        reply("206 Partial Content", size, expected[..1000].to_vec()),
        reply("206 Partial Content", size - 1000, expected[1000..].to_vec()),
    ]);
    let (bytes, requests) = read_part(&base, &part, 0);
    assert!(bytes.unwrap() == expected);
    assert_eq!(requests, 2);
    let last = from + size - 1;
    let first = asked.recv().unwrap();
    assert!(first.contains(&format!("range: bytes={from}-{last}")), "{first}");
    let second = asked.recv().unwrap();
    assert!(
        second.contains(&format!("range: bytes={}-{last}", from + 1000)),
        "{second}"
    );
}

#[test]
fn a_part_comes_also_from_a_cache_that_sends_everything() {
    let (content, packs, index) = middle();
    let blob = manifest::Digest::of(&content);
    let part = index.parts(|digest| *digest == blob, 10).remove(0);
    let whole = packs[&part.info.digest].clone();
    let (from, size) = (part.offset as usize, part.info.size as usize);
    let (base, _asked) = server(vec![reply("200 OK", whole.len(), whole.clone())]);
    assert!(read_part(&base, &part, 0).0.unwrap() == whole[from..from + size]);
}

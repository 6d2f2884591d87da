//! Network: bytes from the server and to it, over the interface that the machine booted from.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::latest::paths;
use protocol::limits::THROUGHPUT_BYTES_MAX;

use super::counters::Counters;
use super::watch::Watch;
use super::{Found, figure};
use crate::api::{Api, ApiError};
use crate::deploy::{Context, chain};
use crate::ramdisk::inventory;

/// Connections at a time: one alone does not fill a fast link.
const STREAMS: usize = 4;
/// Bytes of one upload.
const UPLOAD_BYTES: usize = 16 << 20;
/// Longest measurement of each direction; more tells nothing more, and others want the server too.
const DIRECTION_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
enum Direction {
    Down,
    Up,
}

/// Measures both directions, half of the time each.
pub async fn run(context: &Context, root: &Path, watch: &Watch) -> Found {
    let interface = inventory::read(root, Some(&context.boot_mac))
        .nics
        .into_iter()
        .find(|nic| nic.boot)
        .map(|nic| nic.name);
    let errors = || {
        interface
            .as_deref()
            .map_or_else(Counters::default, |name| Counters::interface(root, name))
    };
    let segments = || Counters::tcp(&std::fs::read_to_string(root.join("proc/net/snmp")).unwrap_or_default());
    let (errors_before, segments_before) = (errors(), segments());
    let half = (watch.left() / 2).min(DIRECTION_LIMIT);
    let (mut problems, mut figures) = (Vec::new(), Vec::new());
    for (name, direction) in [("download", Direction::Down), ("upload", Direction::Up)] {
        watch.say(name);
        match measure(&context.images, direction, Instant::now() + half, watch).await {
            Ok(mbps) => figures.push(figure(name, mbps, "Mb/s")),
            Err(error) => problems.push(format!("{name}: {error}")),
        }
    }
    if figures.is_empty() {
        return Found::not_run(problems.join("; "));
    }
    problems.extend(
        errors()
            .grown(&errors_before)
            .into_iter()
            .map(|(name, by)| format!("{by} {name}")),
    );
    let share = again_share(&segments_before, &segments());
    figures.extend(share.map(|percent| figure("segments sent again", percent, "%")));
    let rates: Vec<String> = figures
        .iter()
        .filter(|figure| figure.unit == "Mb/s")
        .map(|figure| format!("{} {:.0} Mb/s", figure.name, figure.value))
        .collect();
    let over = interface.map_or_else(String::new, |name| format!(" over {name}"));
    Found::of(&problems, format!("{}{over}", rates.join(", ")), figures)
}

/// Segments that TCP had to send again, of a hundred.
fn again_share(before: &Counters, after: &Counters) -> Option<f64> {
    let by = |name: &str| Some(after.get(name)?.saturating_sub(before.get(name)?) as f64);
    let (sent, again) = (by("OutSegs")?, by("RetransSegs")?);
    (sent > 0.0).then(|| again / sent * 100.0)
}

/// Megabits a second of all streams. The time that a server lets one wait for its turn does not count.
async fn measure(server: &Api, direction: Direction, end: Instant, watch: &Watch) -> Result<f64, String> {
    let streams = (0..STREAMS).map(|_| tokio::spawn(stream(server.clone(), direction, end, watch.clone())));
    let (mut rate, mut last) = (0.0, "the limit is too short".to_owned());
    for stream in streams.collect::<Vec<_>>() {
        match stream.await {
            Ok(Ok(one)) => rate += one,
            Ok(Err(error)) => last = chain(&error),
            Err(error) => last = error.to_string(),
        }
    }
    match rate > 0.0 {
        true => Ok(rate),
        false => Err(last),
    }
}

async fn stream(server: Api, direction: Direction, end: Instant, watch: Watch) -> Result<f64, ApiError> {
    let (mut bytes, mut time) = (0_u64, Duration::ZERO);
    let body = Bytes::from(vec![0_u8; UPLOAD_BYTES]);
    while Instant::now() < end && !watch.is_cancelled() {
        let (more, took) = match direction {
            Direction::Down => download(&server, end, &watch).await?,
            Direction::Up => {
                let start = Instant::now();
                server.post_bytes(paths::THROUGHPUT, body.clone()).await?;
                (UPLOAD_BYTES as u64, start.elapsed())
            }
        };
        bytes += more;
        time += took;
    }
    Ok(bytes as f64 * 8.0 / 1e6 / time.as_secs_f64().max(0.001))
}

/// Bytes of one answer, as many as come until the end, and the time from the first of them.
async fn download(server: &Api, end: Instant, watch: &Watch) -> Result<(u64, Duration), ApiError> {
    let path = format!("{}?bytes={THROUGHPUT_BYTES_MAX}", paths::THROUGHPUT);
    let mut answer = server.get_stream(&path, 0, None).await?;
    let (start, mut bytes) = (Instant::now(), 0);
    let transport = |source| ApiError::Transport {
        url: path.clone(),
        source,
    };
    while let Some(chunk) = answer.chunk().await.map_err(transport)? {
        bytes += chunk.len() as u64;
        if Instant::now() >= end || watch.is_cancelled() {
            break;
        }
    }
    Ok((bytes, start.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_sent_again_are_a_share_of_those_sent() {
        let at = |sent, again| Counters::tcp(&format!("Tcp: OutSegs RetransSegs\nTcp: {sent} {again}\n"));
        assert_eq!(again_share(&at(1_000, 5), &at(3_000, 25)), Some(1.0));
        assert_eq!(again_share(&at(1, 1), &at(1, 1)), None);
        assert_eq!(again_share(&Counters::default(), &at(1, 1)), None);
    }
}

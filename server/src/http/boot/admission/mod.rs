//! Large bodies of the boot listener, so many at a time.
//!
//! A fleet that starts at once would share the network a thousand ways, and every firmware's patience would end before
//! its kernel has come. So [`queue`] says who is sent one and who waits; here are the waiting and the giving back. A
//! place belongs to a body and is given back with it, whether it was sent or its client went away.
//!
//! What is small is never held up, nor is what firmware itself fetches (loaders): its patience is a few seconds.

mod machines;
pub mod queue;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;

pub use machines::Machines;
pub use queue::Standing;
use queue::{Asked, Limits, Queue, Turn};

/// Bodies of up to this many bytes wait for nothing.
pub const SMALL_BYTES_MAX: u64 = 64 << 10;
/// How long a request waits before its client is asked to come back. GRUB waits 30 s for an answer's head.
pub const WAIT_LIMIT: Duration = Duration::from_secs(20);
/// Places one machine may have at a time.
const MACHINE_PLACES_MAX: usize = 8;
/// Requests that wait.
const WAITING_MAX: usize = 8_192;
/// Requests of one machine that wait.
const MACHINE_WAITING_MAX: usize = 32;

/// Numbers of the bodies, for people.
#[derive(Clone, Debug, Default)]
pub struct Gauges {
    /// Large bodies that are sent.
    pub in_use: Gauge,
    /// Requests that wait to be sent one.
    pub waiting: Gauge,
    /// Large bodies that are sent at most.
    pub places: Gauge,
}

/// The places for large bodies.
#[derive(Debug)]
pub struct Bodies {
    queue: Mutex<Queue<IpAddr, oneshot::Sender<()>>>,
    gauges: Gauges,
    machines: Machines,
}

/// What a request for a large body gets.
#[derive(Debug)]
pub enum Answer {
    /// It may be sent now.
    Place(Place),
    /// It has to wait.
    Waits(Waiting),
    /// Too many wait.
    Full,
}

impl Bodies {
    /// `places_max` bodies at a time, at least one.
    #[must_use]
    pub fn new(places_max: usize, gauges: Gauges) -> Arc<Self> {
        let places_max = places_max.max(1);
        gauges.places.set(i64::try_from(places_max).unwrap_or(i64::MAX));
        let limits = Limits {
            places_max,
            machine_places_max: MACHINE_PLACES_MAX.min(places_max),
            waiting_max: WAITING_MAX,
            machine_waiting_max: MACHINE_WAITING_MAX,
        };
        Arc::new(Self {
            queue: Mutex::new(Queue::new(limits)),
            gauges,
            machines: Machines::default(),
        })
    }

    /// Which machine speaks from which address.
    #[must_use]
    pub const fn machines(&self) -> &Machines {
        &self.machines
    }

    /// Asks for a place for a machine's body.
    #[must_use]
    pub fn ask(self: &Arc<Self>, machine: IpAddr) -> Answer {
        let (sender, receiver) = oneshot::channel();
        let mut queue = self.lock();
        let asked = queue.ask(machine, Instant::now(), || sender);
        self.show(&queue);
        let holds = Holds {
            bodies: Arc::clone(self),
            machine,
        };
        match asked {
            Asked::Place => Answer::Place(Place(holds)),
            Asked::Waits { turn, is_news } => Answer::Waits(Waiting {
                holds,
                turn,
                granted: receiver,
                is_granted: false,
                is_news,
            }),
            Asked::Full => Answer::Full,
        }
    }

    /// How it stands for a machine that waits; none: it does not.
    #[must_use]
    pub fn standing(&self, machine: IpAddr) -> Option<Standing> {
        self.lock().standing(machine)
    }

    fn release(&self, machine: IpAddr) {
        let mut queue = self.lock();
        for granted in queue.release(machine) {
            // Who is gone gives its place back when it is dropped.
            let _gone = granted.send(());
        }
        self.show(&queue);
    }

    fn show(&self, queue: &Queue<IpAddr, oneshot::Sender<()>>) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.gauges.in_use.set(number(queue.in_use()));
        self.gauges.waiting.set(number(queue.waiting()));
    }

    fn lock(&self) -> MutexGuard<'_, Queue<IpAddr, oneshot::Sender<()>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug)]
struct Holds {
    bodies: Arc<Bodies>,
    machine: IpAddr,
}

/// A place, given back when it is dropped.
#[derive(Debug)]
pub struct Place(Holds);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.bodies.release(self.0.machine);
    }
}

/// A request that waits for a place; dropped, it waits no longer and its machine keeps its turn for a while.
#[derive(Debug)]
pub struct Waiting {
    holds: Holds,
    turn: Turn,
    granted: oneshot::Receiver<()>,
    is_granted: bool,
    is_news: bool,
}

impl Waiting {
    /// Whether its machine did not wait before.
    #[must_use]
    pub const fn is_news(&self) -> bool {
        self.is_news
    }

    /// Waits for the place; none: not within `limit`.
    pub async fn place(mut self, limit: Duration) -> Option<Place> {
        if !matches!(tokio::time::timeout(limit, &mut self.granted).await, Ok(Ok(()))) {
            return None;
        }
        self.is_granted = true;
        Some(Place(self.holds.clone()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_granted {
            return;
        }
        let bodies = &self.holds.bodies;
        let mut queue = bodies.lock();
        let has_left = queue.leave(self.turn, Instant::now());
        bodies.show(&queue);
        drop(queue);
        // Its turn came while it went away.
        if !has_left {
            bodies.release(self.holds.machine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(last: u8) -> IpAddr {
        IpAddr::from([10, 77, 0, last])
    }

    fn place(bodies: &Arc<Bodies>, last: u8) -> Place {
        match bodies.ask(machine(last)) {
            Answer::Place(place) => place,
            other => panic!("no place: {other:?}"),
        }
    }

    fn waiting(bodies: &Arc<Bodies>, last: u8) -> Waiting {
        match bodies.ask(machine(last)) {
            Answer::Waits(waiting) => waiting,
            other => panic!("does not wait: {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_place_that_is_given_back_goes_to_who_waits() {
        let gauges = Gauges::default();
        let bodies = Bodies::new(1, gauges.clone());
        let first = place(&bodies, 1);
        let (second, third) = (waiting(&bodies, 2), waiting(&bodies, 3));
        assert_eq!(
            (gauges.in_use.get(), gauges.waiting.get(), gauges.places.get()),
            (1, 2, 1)
        );
        assert_eq!(bodies.standing(machine(3)).unwrap().before, 1);
        drop(first);
        let second = second.place(WAIT_LIMIT).await.unwrap();
        assert!(third.place(Duration::from_millis(10)).await.is_none());
        assert_eq!((gauges.in_use.get(), gauges.waiting.get()), (1, 0));
        drop(second);
        assert_eq!(gauges.in_use.get(), 0);
        assert!(bodies.ask(machine(3)).is_place());
    }

    #[tokio::test]
    async fn a_place_whose_turn_came_to_somebody_who_is_gone_is_not_lost() {
        let gauges = Gauges::default();
        let bodies = Bodies::new(1, gauges.clone());
        let first = place(&bodies, 1);
        let gone = waiting(&bodies, 2);
        drop(first);
        assert_eq!(gauges.in_use.get(), 1, "its turn has come");
        drop(gone);
        assert_eq!(gauges.in_use.get(), 0);
    }

    impl Answer {
        const fn is_place(&self) -> bool {
            matches!(self, Self::Place(_))
        }
    }
}

//! Who may be sent a large body now, and who waits: values alone.
//!
//! Idea: some bodies at once, and the rest in the order in which machines came. A machine has no more than its share of
//! the places, so that one that opens many connections takes nothing from the others; while it has its share, those
//! behind it are let by. A machine that was turned away after a time (loaders and clients wait only so long) keeps its
//! turn for when it comes back.
//!
//! Invariant: whoever waits while a place is free has its share already. Places, queue and memory are bounded.
//!
//! Refused: a fair share of bytes. Boots end sooner when some are finished than when all are half done.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How long the turn of a machine that was turned away is kept.
const KEPT_FOR: Duration = Duration::from_secs(120);

/// Bounds of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bodies at once.
    pub places_max: usize,
    /// Of these, what one machine may have.
    pub machine_places_max: usize,
    /// Requests that wait.
    pub waiting_max: usize,
    /// Of these, what one machine may have.
    pub machine_waiting_max: usize,
}

/// A place in the order; the smallest is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    since: u64,
    ticket: u64,
}

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A place, until it is released.
    Place,
    /// It waits.
    Waits {
        /// Its turn.
        turn: Turn,
        /// Whether its machine did not wait before, neither for another body nor until it was turned away.
        is_news: bool,
    },
    /// Nothing: too many wait.
    Full,
}

/// How it stands for one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Places in use.
    pub in_use: usize,
    /// Places that there are.
    pub places_max: usize,
    /// Requests that wait and are before it.
    pub before: usize,
    /// Places that its own machine has in use.
    pub own: usize,
}

/// The places and the queue for them. `M` names a machine; `W` is what is kept for one that waits and given back when
/// its turn comes.
#[derive(Debug)]
pub struct Queue<M, W> {
    limits: Limits,
    in_use: usize,
    holding: HashMap<M, usize>,
    waiting: BTreeMap<Turn, (M, W)>,
    waiting_of: HashMap<M, usize>,
    /// Turns of machines that were turned away, and when.
    kept: HashMap<M, (u64, Instant)>,
    next: u64,
}

impl<M: Copy + Eq + Hash, W> Queue<M, W> {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            in_use: 0,
            holding: HashMap::new(),
            waiting: BTreeMap::new(),
            waiting_of: HashMap::new(),
            kept: HashMap::new(),
            next: 0,
        }
    }

    /// Bodies at once.
    pub const fn places_max(&self) -> usize {
        self.limits.places_max
    }

    /// Places in use.
    pub const fn in_use(&self) -> usize {
        self.in_use
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Asks for a place at `now`; `waiter` makes what is kept while it waits.
    pub fn ask(&mut self, machine: M, now: Instant, waiter: impl FnOnce() -> W) -> Asked {
        // By the invariant, none of those that wait can have a free place.
        if self.may_enter(machine) {
            self.kept.remove(&machine);
            self.enter(machine);
            return Asked::Place;
        }
        let own = self.waiting_of.get(&machine).copied().unwrap_or(0);
        if self.waiting.len() >= self.limits.waiting_max || own >= self.limits.machine_waiting_max {
            let since = self.number();
            self.keep(machine, since, now);
            return Asked::Full;
        }
        let kept = self.kept.remove(&machine).filter(|(_, at)| now - *at <= KEPT_FOR);
        let ticket = self.number();
        let turn = Turn {
            since: kept.map_or(ticket, |(since, _)| since),
            ticket,
        };
        self.waiting.insert(turn, (machine, waiter()));
        *self.waiting_of.entry(machine).or_default() += 1;
        Asked::Waits {
            turn,
            is_news: kept.is_none() && own == 0,
        }
    }

    /// Stops waiting at `now`; `false`: its turn had come, and it has a place.
    pub fn leave(&mut self, turn: Turn, now: Instant) -> bool {
        let Some((machine, _)) = self.waiting.remove(&turn) else {
            return false;
        };
        decrement(&mut self.waiting_of, machine);
        self.keep(machine, turn.since, now);
        true
    }

    /// Gives a machine's place back; those whose turn has come have theirs now.
    pub fn release(&mut self, machine: M) -> Vec<W> {
        self.in_use = self.in_use.saturating_sub(1);
        decrement(&mut self.holding, machine);
        let mut admitted = Vec::new();
        while let Some(turn) = self.next_turn() {
            let Some((machine, waiter)) = self.waiting.remove(&turn) else {
                break;
            };
            decrement(&mut self.waiting_of, machine);
            self.enter(machine);
            admitted.push(waiter);
        }
        admitted
    }

    /// How it stands for a machine's first request that waits; none: none does.
    pub fn standing(&self, machine: M) -> Option<Standing> {
        if !self.waiting_of.contains_key(&machine) {
            return None;
        }
        let before = self.waiting.values().position(|(other, _)| *other == machine)?;
        Some(Standing {
            in_use: self.in_use,
            places_max: self.limits.places_max,
            before,
            own: self.holding.get(&machine).copied().unwrap_or(0),
        })
    }

    fn next_turn(&self) -> Option<Turn> {
        let (turn, _) = self.waiting.iter().find(|(_, (machine, _))| self.may_enter(*machine))?;
        Some(*turn)
    }

    fn may_enter(&self, machine: M) -> bool {
        let own = self.holding.get(&machine).copied().unwrap_or(0);
        self.in_use < self.limits.places_max && own < self.limits.machine_places_max
    }

    fn enter(&mut self, machine: M) {
        self.in_use += 1;
        *self.holding.entry(machine).or_default() += 1;
    }

    /// Keeps the earlier of two turns. Where there is no room the turn is lost, and its machine comes last.
    fn keep(&mut self, machine: M, since: u64, now: Instant) {
        if let Some((kept, at)) = self.kept.get_mut(&machine) {
            (*kept, *at) = (since.min(*kept), now);
            return;
        }
        if self.kept.len() >= self.limits.waiting_max {
            self.kept.retain(|_, (_, at)| now - *at <= KEPT_FOR);
        }
        if self.kept.len() < self.limits.waiting_max {
            self.kept.insert(machine, (since, now));
        }
    }

    const fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

fn decrement<M: Copy + Eq + Hash>(counts: &mut HashMap<M, usize>, machine: M) {
    if let Some(count) = counts.get_mut(&machine) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&machine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        places_max: 4,
        machine_places_max: 2,
        waiting_max: 6,
        machine_waiting_max: 3,
    };

    /// Machines are letters; who waits is named by its machine and the order it came in.
    struct Played {
        queue: Queue<char, String>,
        now: Instant,
        came: usize,
    }

    impl Played {
        fn new() -> Self {
            Self {
                queue: Queue::new(LIMITS),
                now: Instant::now(),
                came: 0,
            }
        }

        fn ask(&mut self, machine: char) -> Asked {
            self.came += 1;
            let name = format!("{machine}{}", self.came);
            self.queue.ask(machine, self.now, || name)
        }

        fn wait(&mut self, machine: char) -> Turn {
            match self.ask(machine) {
                Asked::Waits { turn, .. } => turn,
                other => panic!("{machine} should wait: {other:?}"),
            }
        }

        /// Asks for each letter, in order.
        fn all(machines: &str) -> (Self, Vec<Asked>) {
            let mut played = Self::new();
            let asked = machines.chars().map(|machine| played.ask(machine)).collect();
            (played, asked)
        }
    }

    #[test]
    fn places_are_given_out_and_then_waited_for_in_order() {
        let (mut played, asked) = Played::all("abcdef");
        assert_eq!(asked.iter().filter(|asked| **asked == Asked::Place).count(), 4);
        let before = |played: &Played, machine| played.queue.standing(machine).unwrap().before;
        assert_eq!((before(&played, 'e'), before(&played, 'f')), (0, 1));
        assert_eq!(played.queue.standing('a'), None);
        assert_eq!(played.queue.release('a'), ["e5"]);
        assert_eq!(played.queue.release('b'), ["f6"]);
        assert_eq!(played.queue.release('c'), Vec::<String>::new());
        assert_eq!((played.queue.in_use(), played.queue.waiting()), (3, 0));
    }

    #[test]
    fn a_machine_has_no_more_than_its_share_and_lets_others_by() {
        let (mut played, _) = Played::all("aaabb");
        // Two of a, two of b; the third of a waits, and c and d behind it.
        let standing = played.queue.standing('a').unwrap();
        assert_eq!((standing.in_use, standing.places_max, standing.own), (4, 4, 2));
        played.wait('c');
        assert_eq!(played.queue.release('b'), ["c6"], "a has its share");
        assert_eq!(played.queue.release('a'), ["a3"], "now it is below it");
    }

    #[test]
    fn a_share_holds_while_places_are_free_too() {
        let (mut played, asked) = Played::all("aaa");
        assert!(matches!(asked[2], Asked::Waits { .. }));
        assert_eq!(played.ask('b'), Asked::Place, "a's own third is nobody else's");
        assert_eq!(played.queue.release('a'), ["a3"]);
    }

    #[test]
    fn the_queue_is_bounded_as_a_whole_and_for_each_machine() {
        let (mut played, _) = Played::all("abcd");
        for _ in 0..4 {
            played.ask('a');
        }
        assert_eq!((played.ask('a'), played.queue.waiting()), (Asked::Full, 3));
        for machine in ['e', 'f', 'g'] {
            played.wait(machine);
        }
        assert_eq!((played.ask('h'), played.queue.waiting()), (Asked::Full, 6));
    }

    #[test]
    fn who_was_turned_away_comes_back_to_its_turn() {
        let (mut played, _) = Played::all("abcd");
        let turn = played.wait('e');
        played.wait('f');
        assert!(played.queue.leave(turn, played.now));
        assert_eq!(played.queue.standing('f').unwrap().before, 0);
        let again = played.ask('e');
        assert!(matches!(again, Asked::Waits { is_news: false, .. }), "{again:?}");
        assert_eq!(played.queue.standing('f').unwrap().before, 1);
        assert_eq!(played.queue.release('a'), ["e7"]);
        // The turn was used.
        played.queue.release('e');
        assert!(matches!(
            played.ask('g'),
            Asked::Place | Asked::Waits { is_news: true, .. }
        ));
    }

    #[test]
    fn a_turn_is_not_kept_for_ever() {
        let (mut played, _) = Played::all("abcd");
        let turn = played.wait('e');
        played.wait('f');
        played.queue.leave(turn, played.now);
        played.now += KEPT_FOR + Duration::from_secs(1);
        assert!(matches!(played.ask('e'), Asked::Waits { is_news: true, .. }));
        assert_eq!(played.queue.release('a'), ["f6"]);
    }

    #[test]
    fn a_turn_that_came_meanwhile_is_not_left_but_released() {
        let (mut played, _) = Played::all("abcd");
        let turn = played.wait('e');
        assert_eq!(played.queue.release('a'), ["e5"]);
        assert!(!played.queue.leave(turn, played.now));
        played.queue.release('e');
        assert_eq!(played.queue.in_use(), 3);
    }

    #[test]
    fn nothing_is_kept_of_who_is_gone() {
        let (mut played, _) = Played::all("abcdefg");
        for machine in "abcdefg".chars() {
            played.queue.release(machine);
        }
        assert_eq!((played.queue.in_use(), played.queue.waiting()), (0, 0));
        assert!(played.queue.holding.is_empty() && played.queue.waiting_of.is_empty() && played.queue.kept.is_empty());
    }
}

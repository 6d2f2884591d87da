//! `plumbline-bench http`: the boot listener's packs beside nginx.
//!
//! Reading order: [`cases`] says what is measured and what it should come to, [`generator`] is many reading clients,
//! [`servers`] starts what is measured ([`serve`] is this project's), [`rounds`] takes it all in turns, [`report`] tells.

pub mod cases;
pub mod generator;
pub mod report;
pub mod rounds;
pub mod serve;
pub mod servers;

//! The private PostgreSQL, with the installed package.

mod death;
mod folder;
mod life;
mod support;

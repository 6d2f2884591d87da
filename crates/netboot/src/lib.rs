//! netboot

mod disk;
mod http;
mod image;
mod in_place;
mod inventory;
mod write;

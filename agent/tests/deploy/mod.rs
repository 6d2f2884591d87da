mod disk;
mod http;
mod image;
mod inventory;
mod write;

//! skink-simulator

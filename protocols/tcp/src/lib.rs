//! skink-tcp

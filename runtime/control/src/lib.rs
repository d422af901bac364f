//! skink-control

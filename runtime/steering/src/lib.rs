//! skink-steering

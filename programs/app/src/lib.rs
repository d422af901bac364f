//! skink-app

//! Raising all tokens, after etcd was restored from a snapshot.
//!
//! A restored etcd counts its revisions from the snapshot on, so tokens that were given out since would be given
//! out again. The base is added to every token; raised above the highest token that can have been given out, it
//! makes the next one larger than all of them.

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use ferrolho_core::FencingToken;
use tokio::time::Instant;

use super::commit::parse_base;
use super::config::EtcdConfig;
use super::failure::{Failure, Kind};
use super::keys::Keys;
use super::members::{Effort, Members};
use super::record::MAX_BASE;
use super::requests::Cluster;
use super::{ENGINE_TIMEOUT, EtcdOpenError};

/// Sees to it that every further token of this store is above `above`. Returns the base that does so. Servers
/// that are running take it up by themselves; locks that live keep their tokens.
pub async fn raise_tokens(config: &EtcdConfig, above: FencingToken) -> Result<u64, EtcdOpenError> {
    let cluster = Cluster::new(Members::new(config)?);
    let keys = Keys::new(&config.prefix);
    raise(&cluster, &keys, above.get())
        .await
        .map_err(|failure| EtcdOpenError::NoAnswer(failure.to_string()))
}

async fn raise(cluster: &Cluster, keys: &Keys, above: u64) -> Result<u64, Failure> {
    if above > MAX_BASE {
        return Err(Failure::new(
            Kind::Denied,
            format!("tokens can be raised up to {MAX_BASE}"),
        ));
    }
    let until = Instant::now() + ENGINE_TIMEOUT;
    loop {
        let reading = cluster.read(std::slice::from_ref(&keys.base), until).await?;
        let found = reading.values.first().and_then(Option::as_ref);
        let (base, revision) = match found {
            Some(value) => (parse_base(value.value())?, value.mod_revision()),
            None => (0, 0),
        };
        if base >= above {
            return Ok(base);
        }
        // Raising twice to the same number changes nothing, so it may be repeated.
        let txn = Txn::new()
            .when([Compare::mod_revision(
                keys.base.clone(),
                CompareOp::Equal,
                revision,
            )])
            .and_then([TxnOp::put(keys.base.clone(), above.to_string(), None)]);
        let committed = cluster.transact(txn, Effort::Repeat, until).await?;
        if committed.succeeded {
            return Ok(above);
        }
    }
}

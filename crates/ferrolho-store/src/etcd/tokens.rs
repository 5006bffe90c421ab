//! Lifting all tokens, after etcd was restored from a snapshot.
//!
//! A restored etcd counts its revisions from the snapshot on, so tokens that were given out since would be given
//! out again. The base is added to every token; raised above the highest token that can have been given out, it
//! makes the next one larger than all of them.

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::time::Instant;

use super::commit::parse_base;
use super::config::EtcdConfig;
use super::failure::{Failure, Kind};
use super::keys::Keys;
use super::members::{Effort, Members};
use super::record::MAX_BASE;
use super::requests::Cluster;
use super::{ENGINE_TIMEOUT, EtcdOpenError};
use crate::Lift;

/// Lifts every further token of this store. Returns the base that does so, which all of them are above. Servers
/// that are running take it up by themselves; locks that live keep their tokens.
pub(crate) async fn lift_tokens(config: &EtcdConfig, lift: Lift) -> Result<u64, EtcdOpenError> {
    let cluster = Cluster::new(Members::new(config)?);
    let keys = Keys::new(&config.prefix);
    raise(&cluster, &keys, lift)
        .await
        .map_err(|failure| EtcdOpenError::NoAnswer(failure.to_string()))
}

async fn raise(cluster: &Cluster, keys: &Keys, lift: Lift) -> Result<u64, Failure> {
    let until = Instant::now() + ENGINE_TIMEOUT;
    loop {
        let reading = cluster.read(std::slice::from_ref(&keys.base), until).await?;
        let found = reading.values.first().and_then(Option::as_ref);
        let (base, revision) = match found {
            Some(value) => (parse_base(value.value())?, value.mod_revision()),
            None => (0, 0),
        };
        let lifted = lift.target(base);
        if lifted > MAX_BASE {
            return Err(Failure::new(
                Kind::Denied,
                format!("tokens can be lifted up to {MAX_BASE}"),
            ));
        }
        if lifted == base {
            return Ok(base);
        }
        // Lifted twice, because the first answer was lost, they are lifted further than they need be.
        let txn = Txn::new()
            .when([Compare::mod_revision(
                keys.base.clone(),
                CompareOp::Equal,
                revision,
            )])
            .and_then([TxnOp::put(keys.base.clone(), lifted.to_string(), None)]);
        let committed = cluster.transact(txn, Effort::Repeat, until).await?;
        if committed.succeeded {
            return Ok(lifted);
        }
    }
}

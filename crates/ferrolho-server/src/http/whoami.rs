//! `GET /whoami`: as whom the server knows the caller, and what it may do.

use ferrolho_core::wire::WhoAmI;

use super::call::Call;
use super::problem::Problem;
use super::reply::Reply;

/// Answers every caller that is known, and without authentication everybody.
pub(super) fn get_whoami(call: &Call<'_>) -> Result<Reply, Problem> {
    call.query(&[])?.finish(Some(()))?;
    Ok(Reply::ok(&WhoAmI {
        principal: call.principal(),
        rights: call.access.rights(),
        allow: call.access.allowed(),
    }))
}

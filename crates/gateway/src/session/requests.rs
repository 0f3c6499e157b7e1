//! Requests that are executed once: how an instance of one begins and commits.
//!
//! Owns: what `tutti_begin` and its like do in a session, the end of earlier instances that this gateway executes, and
//! the choice of how an instance is committed.
//! Never: keeps a family (its keeper does, see `tutti_cluster::requests`), or drives a commit over several nodes.
//! Start reading at [`Session::request`], then [`Session::commit_request`]. `docs/protocol/exactly-once.md` is the
//! protocol.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tutti_cluster::requests::{FAMILY_BYTES_MAX, Instance, Kept, Record};
use tutti_link::connection::{NodeError, unknown_outcome};
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{InstanceNamed, RequestCall, TransactionControl, TuttiCall, Value};
use tutti_txn::coordinator::Form;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::Session;
use super::code_at_commit::LateCode;
use crate::client::failure::Failure;
use crate::plans::request::{Call, Done};
use crate::registry::activity::SUPERSEDED_MESSAGE;
use crate::registry::requests::Busy;
use crate::transaction::state::{OpenRequest, Remembered};
use crate::transaction::{Characteristics, Mode};

/// How long a later instance waits for the commit of an earlier one, which it has cancelled.
const COMMIT_PATIENCE: Duration = Duration::from_secs(10);
/// How long the session of an earlier instance may take to end, before it is ended by force.
const FORCE_PATIENCE: Duration = Duration::from_millis(300);
const AGAIN: &str = "Nothing was committed. Begin a later instance: it is given the result, if there is one by then.";

/// What is said with an unknown outcome.
pub(super) const ASK_LATER: &str =
    "Begin a later instance of the request: it is given the result, if there is one.";

/// `tutti_begin` answers one row: what became of the family, by which instance, and with what result.
fn told(state: &str, instance: i64, result: Option<String>) -> Vec<Vec<Option<String>>> {
    vec![vec![Some(state.to_owned()), Some(instance.to_string()), result]]
}

fn too_late(family: &str, latest: i64) -> Failure {
    let message = format!("instance {latest} of request \"{family}\" has begun");
    ErrorFields::error(sqlstate::SERIALIZATION_FAILURE, message).with(b'H', AGAIN).into()
}

impl Session {
    /// Carries out a call about a request, and answers it.
    pub(super) async fn request(
        &mut self,
        function: &TuttiCall,
        asked: &RequestCall,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let rows = match asked {
            RequestCall::Begin { instance } => {
                let begun = match self.instance(instance, call) {
                    Ok(instance) => self.begin_request(instance).await,
                    Err(failure) => Err(failure),
                };
                if begun.is_err() {
                    // Who does not look at the answer must not go on outside of any block.
                    self.open_block();
                }
                begun?
            }
            RequestCall::Prepare { instance, request, result } => {
                let instance = self.instance(instance, call)?;
                let (request, result) = (text_of(request, call)?, text_of(result, call)?);
                let made = self.tx.transaction.step_count();
                let open = self.need_instance(Some(&instance))?;
                open.remember(Remembered { made, request, result, is_prepared: true });
                self.family_rows(&instance.family).await?
            }
            RequestCall::Remember { result } => {
                let result = text_of(result, call)?;
                let made = self.tx.transaction.step_count();
                let open = self.need_instance(None)?;
                let request = open.remembered().request.clone();
                let told = told("begun", open.at_work.instance().number, result.clone());
                open.remember(Remembered { made, request, result, is_prepared: false });
                told
            }
            RequestCall::Commit { instance } => {
                let instance = instance.as_ref().map(|it| self.instance(it, call)).transpose()?;
                if !self.tx.transaction.failed {
                    self.need_instance(instance.as_ref())?;
                }
                // It is answered as COMMIT is, without rows.
                let control = TransactionControl::Commit { chain: false };
                return self.transaction_control(&control, text, call).await;
            }
            RequestCall::Look { family } => {
                let family = family_of(text_of(family, call)?)?;
                self.family_rows(&family).await?
            }
        };
        Ok(self.executor().tell_function(function, rows, call))
    }

    fn instance(&self, named: &InstanceNamed, call: &Call) -> Result<Instance, Failure> {
        let family = family_of(text_of(&named.family, call)?)?;
        let number = number_of(&named.number, call)?;
        if number < 1 {
            let message = format!("instance {number} of request \"{family}\" cannot be");
            let hint = "Instances count from 1; each attempt has a number of its own, larger than those before.";
            return Err(ErrorFields::error("22023", message).with(b'H', hint).into());
        }
        Ok(Instance { owner: self.owner(), family, number })
    }

    /// Whose requests they are: the role's number on node 1, for another may get its name.
    fn owner(&self) -> String {
        self.tx.role.to_string()
    }

    fn open_block(&mut self) {
        if self.tx.transaction.mode != Mode::Explicit {
            self.tx.begin_transaction(&Characteristics::default());
        }
    }

    /// Errors: 40001 where a later instance has begun; 55006 where another session executes this one; 25001 inside a
    /// transaction that has begun to work.
    async fn begin_request(
        &mut self,
        instance: Instance,
    ) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let transaction = &self.tx.transaction;
        // A savepoint could take the block back to where it had not been told that all is done.
        let has_begun = transaction.queried || transaction.last_savepoint().is_some();
        if transaction.request.is_some() || has_begun || !transaction.nodes.is_empty() {
            let message =
                "an instance of a request must begin before its transaction has done anything";
            return Err(Failure::error("25001", message));
        }
        let cluster = self.tx.registry.cluster.clone();
        // The first fences nobody.
        if 1 < instance.number {
            let give_up = Instant::now() + COMMIT_PATIENCE;
            let Kept { fence, committed, result, .. } = loop {
                let kept = cluster.begin_request(&instance).await;
                if let Some(kept) = kept.map_err(|error| error.to_fields())? {
                    break kept;
                }
                // An earlier one is in its commit on the keeper, and waits there, for others or for its own code.
                self.end_earlier(&instance);
                if give_up < Instant::now() {
                    let family = &instance.family;
                    let message =
                        format!("an earlier instance of request \"{family}\" is being committed");
                    return Err(ErrorFields::error(sqlstate::LOCK_NOT_AVAILABLE, message)
                        .with(b'H', AGAIN)
                        .into());
                }
            };
            if let Some(by) = committed {
                // Who does not look at the answer must not execute it again: the block takes nothing but its end.
                self.open_block();
                self.tx.transaction.failed = true;
                return Ok(told("committed", by, result));
            }
            if instance.number < fence {
                return Err(too_late(&instance.family, fence));
            }
        }
        let (family, number) = (instance.family.clone(), instance.number);
        let begun = self.tx.registry.requests.begin(instance, self.tx.process_id);
        let at_work = begun.map_err(|busy| match busy {
            Busy::Later(latest) => too_late(&family, latest),
            Busy::Itself => {
                let message = format!(
                    "instance {number} of request \"{family}\" is being executed by another session"
                );
                let hint = "Each attempt needs a number of its own.";
                ErrorFields::error("55006", message).with(b'H', hint).into()
            }
        })?;
        // They cannot commit any more, and their locks would only be in the way.
        self.end_earlier(at_work.instance());
        self.open_block();
        self.tx.transaction.request = Some(OpenRequest::new(at_work));
        Ok(told("begun", number, None))
    }

    /// Ends the sessions that execute earlier instances. It is not awaited: a node that hangs keeps nobody waiting.
    fn end_earlier(&self, instance: &Instance) {
        for session in self.tx.registry.requests.earlier(instance) {
            let (registry, instance) = (self.tx.registry.clone(), instance.clone());
            tokio::spawn(async move {
                // One that has been told meanwhile, and does something else now, is left alone.
                if registry.requests.earlier(&instance).contains(&session) {
                    registry.end_session(session, SUPERSEDED_MESSAGE, FORCE_PATIENCE).await;
                }
            });
        }
    }

    /// The instance whose transaction is open; it must be this one, if one is named.
    ///
    /// Errors: 25P01 where there is none; 22023 where it is another.
    fn need_instance(&mut self, named: Option<&Instance>) -> Result<&mut OpenRequest, Failure> {
        let Some(open) = &mut self.tx.transaction.request else {
            let hint = "BEGIN_MIP 'request', 1; or SELECT tutti_begin('request', 1)";
            return Err(ErrorFields::error("25P01", "there is no request in progress")
                .with(b'H', hint)
                .into());
        };
        let instance = open.at_work.instance();
        match named {
            Some(named) if named != instance => {
                let Instance { family, number, .. } = instance;
                let message = format!("the request in progress is \"{family}\", instance {number}");
                Err(Failure::error("22023", message))
            }
            _ => Ok(open),
        }
    }

    /// What is known of a family: its instances, with their states and results, and what was asked for.
    async fn family_rows(&mut self, family: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let cluster = self.tx.registry.cluster.clone();
        let kept = cluster.look_up_request(&self.owner(), family).await;
        let Kept { fence, committed, request, result, .. } =
            kept.map_err(|error| error.to_fields())?;
        let row = |number: i64, state: &str, result: Option<String>, request: Option<String>| {
            vec![Some(number.to_string()), Some(state.to_owned()), result, request]
        };
        let own = self.tx.transaction.request.as_ref();
        let own = own.filter(|own| own.at_work.instance().family == family);
        let number_of_own = own.map(|own| own.at_work.instance().number);
        let mut rows = Vec::new();
        match committed {
            Some(by) => rows.push(row(by, "committed", result, request)),
            None if 0 < fence && Some(fence) != number_of_own => {
                rows.push(row(fence, "begun", None, None))
            }
            None => (),
        }
        if let (Some(own), Some(number)) = (own, number_of_own) {
            let state = match (committed.is_some() || number < fence, own.remembered().is_prepared)
            {
                (true, _) => "abort",
                (false, true) => "prepared",
                (false, false) => "begun",
            };
            let Remembered { request, result, .. } = own.remembered().clone();
            rows.push(row(number, state, result, request));
        }
        rows.sort();
        Ok(rows)
    }

    /// Commits the transaction of an instance that has used these nodes, with what is kept of it. All of them vote:
    /// of what a query calls it is not known whether it writes.
    ///
    /// Errors: as those of any commit; 40001 also where another instance has committed or a later one has begun.
    pub(super) async fn commit_request(
        &mut self,
        record: Record,
        used: &[NodeId],
        late: Option<Arc<LateCode>>,
    ) -> Result<(), Failure> {
        let keeper = self.tx.registry.cluster.keeper_of(&record.instance.family);
        let is_read_only = self.tx.transaction.is_read_only();
        match used {
            [] => {
                let finishers = &self.tx.registry.cluster.finishers;
                match finishers.decide_request(keeper, record.sql()).await {
                    Ok(()) => Ok(()),
                    Err(NodeError::Refused(fields)) => Err((*fields).into()),
                    Err(lost) => Err(unknown_outcome(lost).with(b'H', ASK_LATER).into()),
                }
            }
            // READ ONLY, nothing can be kept in it.
            [node] if *node == keeper && !is_read_only => {
                self.commit_one_writer(keeper, late.as_ref(), Some(&record)).await
            }
            used => {
                if self.tx.cannot_prepare(used).is_some() {
                    return Err(Failure::unsupported(
                        "a request that has used temporary tables, LISTEN, NOTIFY or a cursor WITH HOLD cannot be committed",
                        format!(
                            "It has used nodes other than the one that keeps it, node {keeper}, and a node cannot prepare such things."
                        ),
                        "Do without them in a request.",
                    ));
                }
                let form = if used.contains(&keeper) { Form::Apart } else { Form::Elsewhere };
                self.commit_global(used, late, (keeper, form), Some(record)).await
            }
        }
    }

    /// Keeps what this instance has led to, in the transaction of its client's on the keeper.
    pub(super) async fn keep_request(
        &mut self,
        keeper: NodeId,
        record: &Record,
    ) -> Result<(), Failure> {
        let seals = self.tx.registry.cluster.seals.clone();
        let link = self.tx.link(keeper).await?;
        // A client that is told of its commit is told once and for all, whatever it has set.
        link.put_silent("SET LOCAL synchronous_commit = on");
        link.learn_moment().await?;
        let seal = seals.seal_now(link.connection(), &record.sealed_message());
        let (sql, values) = record.own_sql(seal);
        link.query_with_nulls(&sql, values).await?;
        Ok(())
    }
}

fn family_of(text: Option<String>) -> Result<String, Failure> {
    let refused = |message: &str| Err(Failure::error("22023", message.to_owned()));
    match text {
        None => refused("a request's name cannot be NULL"),
        Some(name) if name.is_empty() => refused("a request's name cannot be empty"),
        Some(name) if FAMILY_BYTES_MAX < name.len() => {
            refused(&format!("a request's name cannot be longer than {FAMILY_BYTES_MAX} bytes"))
        }
        Some(name) => Ok(name),
    }
}

/// A value of the call, as text.
fn text_of(value: &Value, call: &Call) -> Result<Option<String>, Failure> {
    let Some((bytes, _)) = given(value, call)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(Some(text)),
        _ => Err(Failure::error("22021", "invalid byte sequence for encoding \"UTF8\"")),
    }
}

/// A value of the call, as a number.
fn number_of(value: &Value, call: &Call) -> Result<i64, Failure> {
    let wrong = || Failure::error("22P02", "an instance of a request is a number of type bigint");
    let Some((bytes, is_binary)) = given(value, call)? else { return Err(wrong()) };
    let binary = || match *bytes.as_slice() {
        [a, b] => Some(i16::from_be_bytes([a, b]).into()),
        [a, b, c, d] => Some(i32::from_be_bytes([a, b, c, d]).into()),
        [a, b, c, d, e, f, g, h] => Some(i64::from_be_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    };
    let number = match is_binary {
        true => binary(),
        false => std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok()),
    };
    number.ok_or_else(wrong)
}

/// The bytes of a value, and whether they are in a type's binary format; `None` for NULL.
fn given(value: &Value, call: &Call) -> Result<Option<(Vec<u8>, bool)>, Failure> {
    let index = match value {
        Value::Null => return Ok(None),
        Value::Text(text) => return Ok(Some((text.clone().into_bytes(), false))),
        Value::Parameter(index) => usize::from(*index),
    };
    let Call::Extended { arguments, .. } = call.client() else {
        return Err(Failure::error("42P02", format!("there is no parameter ${}", index + 1)));
    };
    let Some(value) = arguments.values.get(index) else {
        return Err(Failure::error(
            "08P01",
            format!("no value was bound to parameter ${}", index + 1),
        ));
    };
    Ok(value.as_ref().map(|bytes| (bytes.to_vec(), arguments.format(index) != 0)))
}

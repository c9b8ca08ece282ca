//! The user's interface to contexts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use candle_core::Tensor;
use rustc_hash::FxHashMap;
use telegrad_rpc::{Error, Result, World};
use telegrad_trace::Kind;
use telegrad_wire::ContextId;

use crate::backend::AutogradBackend;
use crate::backward::{self, Limit};
use crate::candle::{Candle, Param};
use crate::info::AutogradInfo;
use crate::layer::{erased_node_of, node_of};
use crate::message::PassId;
use crate::mode::Mode;
use crate::node::Node;
use crate::notify;
use crate::roots::Roots;
use telegrad_error::AutogradError;

/// Autograd as methods of a [`World`].
pub trait AutogradWorld {
    /// Runs `f` in a new context.
    ///
    /// Calls made within `f`, and the calls that these make on other workers, track the tensors that require a gradient.
    /// Each context has its own gradients. When `f` returns, with a value or an error, the context ends on every worker.
    ///
    /// A thread is in one context at a time; other threads enter with [`Context::enter`].
    ///
    /// # Errors
    /// The error of `f`; [`AutogradError::Nested`] within another context.
    fn context<R>(&self, f: impl FnOnce(&Context) -> Result<R>) -> Result<R>;

    /// Returns counters of autograd's state on this worker.
    ///
    /// # Errors
    /// [`AutogradError::NotThere`] when the world was made without autograd.
    fn autograd_info(&self) -> Result<AutogradInfo>;
}

impl AutogradWorld for World {
    fn context<R>(&self, f: impl FnOnce(&Context) -> Result<R>) -> Result<R> {
        Context::open(self, f)
    }

    fn autograd_info(&self) -> Result<AutogradInfo> {
        Ok(erased_node_of(self)?.info())
    }
}

/// An autograd context: the scope of tracked tensors, backward passes and their gradients across workers.
pub struct Context<B: AutogradBackend = Candle> {
    world: World,
    id: ContextId,
    node: Arc<Node<B>>,
}

/// Options of a backward pass.
#[derive(Clone, Debug, Default)]
pub struct Backward {
    /// The treatment of results that the loss does not depend on.
    pub mode: Mode,
    /// Keeps the graph for another pass.
    pub retain_graph: bool,
    /// Time limit of the whole pass; by default the world's limit for calls. Zero: no limit.
    pub timeout: Option<Duration>,
}

impl<B: AutogradBackend> Context<B> {
    /// Runs `f` in a new context; see [`AutogradWorld::context`].
    ///
    /// # Errors
    /// As [`AutogradWorld::context`].
    pub fn open<R>(world: &World, f: impl FnOnce(&Self) -> Result<R>) -> Result<R> {
        if let Some(outer) = world.current_context() {
            return Err(AutogradError::Nested(outer).into());
        }
        let node = node_of::<B>(world)?;
        let context = Self {
            id: node.open(world.rank()),
            world: world.clone(),
            node,
        };
        /// Ends the context, also when `f` panics.
        struct End<'a, B: AutogradBackend>(&'a Context<B>);
        impl<B: AutogradBackend> Drop for End<'_, B> {
            fn drop(&mut self) {
                let Context { world, id, node } = self.0;
                let still = node.contexts.close(*id);
                notify::end(world, &**node, *id, Some(&still));
            }
        }
        let _end = End(&context);
        world.in_context(Some(context.id), || f(&context))
    }

    /// As [`Context::current`], with tensors of any library.
    ///
    /// # Errors
    /// As [`Context::current`].
    pub fn current_of() -> Result<Self> {
        let world = World::current()?;
        let id = world.current_context().ok_or(AutogradError::NoContext)?;
        let node = node_of(&world)?;
        Ok(Self { world, id, node })
    }

    /// The name of the context in the world.
    pub fn id(&self) -> ContextId {
        self.id
    }

    /// The world that the context belongs to.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Runs `f` in this context, for threads other than the one that opened it.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        self.world.in_context(Some(self.id), f)
    }

    /// Computes the gradients of all leaves that the roots depend on, on every worker, and adds them to the context's.
    ///
    /// A root is a scalar of this worker: `backward(&loss)` has one, `backward(&[first, second])` several. See [`Roots`].
    ///
    /// # Errors
    /// When an operation fails on any worker, or a worker in the context is lost. The context has then failed on all
    /// workers.
    pub fn backward(&self, roots: &(impl Roots<B::Tensor> + ?Sized)) -> Result<()> {
        self.backward_with(roots, &Backward::default())
    }

    /// As [`backward`](Self::backward), with options.
    ///
    /// # Errors
    /// As [`backward`](Self::backward); [`AutogradError::TimedOut`] at the time limit.
    pub fn backward_with(&self, roots: &(impl Roots<B::Tensor> + ?Sized), options: &Backward) -> Result<()> {
        let (world, node) = (&self.world, &*self.node);
        let limit = Limit::new(world, options.timeout);
        let pass = node.new_pass(world.rank(), options.retain_graph, options.mode);
        let _end = EndPass(node, pass.id);
        let scope = telegrad_trace::scope(Kind::Autograd, || "backward".into());
        // The calls of a pass belong to no context.
        let result = world.in_context(None, || {
            let first = node.start(self.id, pass, roots.as_roots().to_vec())?;
            backward::run(world, node, self.id, (pass, options.mode), first, &limit)
        });
        result.map_err(|error| {
            let error = timed_out(error, limit.duration());
            scope.fail(|| error.to_string());
            if !is_refusal(&error) {
                notify::fail(world, node, self.id, &error.to_string());
            }
            error
        })
    }

    /// The gradients of this worker's leaves, summed over the passes so far.
    ///
    /// # Errors
    /// When a pass has failed, since gradients are then incomplete. When this worker takes no part in the context.
    #[doc(alias = "get_gradients")]
    pub fn gradients(&self) -> Result<Gradients<B>> {
        let gradients = self
            .node
            .with_graph(self.id, |graph| Ok(graph.gradients.clone()))?;
        Ok(Gradients(gradients))
    }
}

impl<B: AutogradBackend> fmt::Debug for Context<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({} on `{}`)", self.id, self.world.name())
    }
}

/// Ends a pass on drop, also when an operation panics.
struct EndPass<'a, B: AutogradBackend>(&'a Node<B>, PassId);

impl<B: AutogradBackend> Drop for EndPass<'_, B> {
    fn drop(&mut self) {
        self.0.end_pass(self.1);
    }
}

/// Turns the timeout of a call into that of its pass.
fn timed_out(error: Error, of_pass: Duration) -> Error {
    match error {
        // The call's own limit is shorter than the pass's.
        Error::Timeout { worker, .. } => AutogradError::TimedOut {
            limit: of_pass,
            why: format!("worker `{worker}` had not answered"),
        }
        .into(),
        error => error,
    }
}

/// Whether the error was found before the pass began: the context then remains usable.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.autograd(),
        Some(
            AutogradError::NoRoots
                | AutogradError::Root { .. }
                | AutogradError::Ended(_)
                | AutogradError::Failed { .. }
        )
    )
}

impl Context<Candle> {
    /// The context that the running remote function was called in.
    ///
    /// # Errors
    /// [`AutogradError::NoContext`] when it was called outside of a context.
    pub fn current() -> Result<Self> {
        Self::current_of()
    }

    /// Replaces the value of a parameter of this worker; returns the new version.
    ///
    /// # Errors
    /// As [`Param::set`] and [`check_update`](Self::check_update).
    pub fn update(&self, param: &Param, value: &Tensor) -> Result<u64> {
        self.check_update(param)?;
        param.set(value)
    }

    /// Checks that a parameter of this worker can be replaced now.
    ///
    /// # Errors
    /// [`AutogradError::InUse`] when the parameter is a variable that is changed in place, and another open context needs
    /// its present value.
    pub fn check_update(&self, param: &Param) -> Result<()> {
        if let Some(leaf) = param.in_place()
            && let Some(context) = self.node.context_needing(leaf, self.id)
        {
            let parameter = param.name().to_owned();
            return Err(AutogradError::InUse { parameter, context }.into());
        }
        Ok(())
    }
}

/// The gradients of one worker's leaves in one context.
pub struct Gradients<B: AutogradBackend = Candle>(FxHashMap<B::LeafId, B::Tensor>);

impl<B: AutogradBackend> Gradients<B> {
    /// The gradient of a leaf.
    pub fn of_leaf(&self, leaf: B::LeafId) -> Option<&B::Tensor> {
        self.0.get(&leaf)
    }

    /// The number of gradients.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no gradients.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Gradients<Candle> {
    /// The gradient of a parameter, summed over the versions that the context has read; `None` when no loss depends on
    /// it.
    ///
    /// # Errors
    /// When candle cannot add the gradients.
    pub fn get(&self, param: &Param) -> Result<Option<Tensor>> {
        param.sum_over_leaves(|leaf| self.0.get(&leaf))
    }

    /// The gradient of a variable that is not a [`Param`].
    pub fn of(&self, variable: &Tensor) -> Option<&Tensor> {
        self.0.get(&variable.id())
    }
}

impl<B: AutogradBackend> fmt::Debug for Gradients<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

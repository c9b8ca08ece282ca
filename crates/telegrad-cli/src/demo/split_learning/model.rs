//! Who has which layers.

use telegrad::nn::{
    self, AnyModule, Conv2d, Conv2dOptions, Dropout, Flatten, Func, Linear, MaxPool2d, Relu, Rng, Sequential,
};
use telegrad::prelude::*;

use super::LabelSide;

/// Rows and columns of an image.
const SIDE: usize = 8;
const CLASSES: usize = 10;
/// What the client's layers look for.
const CHANNELS: usize = 16;

/// Widths between the blocks that servers have: first what the client gives, of each channel a quarter of the
/// places.
const BLOCKS: [usize; 4] = [CHANNELS * SIDE * SIDE / 4, 128, 64, 64];

/// A network of which the client, this worker, has the first layers and the servers the rest; with labels on the
/// client, it has the last layer too.
pub(super) struct Model {
    first: Sequential,
    middle: RemoteSequential,
    last: Last,
}

enum Last {
    Here(Linear),
    There(RRef<Head>),
}

/// Loss, and how many were right.
pub(super) struct Outcome {
    pub(super) loss: Tensor,
    pub(super) right: u32,
}

#[remote]
fn block(inputs: usize, outputs: usize, seed: u64) -> Result<AnyModule> {
    Ok(AnyModule::new(layers(inputs, outputs, seed)?))
}

fn layers(inputs: usize, outputs: usize, seed: u64) -> Result<Sequential> {
    let linear = Linear::new(inputs, outputs, &mut Rng::new(seed))?;
    Ok(Sequential::new().push(linear).push(Relu))
}

/// The client's layers.
fn first_layers(seed: u64) -> Result<Sequential> {
    let mut rng = Rng::new(seed);
    let images = |x: &Tensor| Ok(x.reshape(((), 1, SIDE, SIDE))?);
    let options = Conv2dOptions {
        padding: 1.into(),
        ..Conv2dOptions::default()
    };
    Ok(Sequential::new()
        .push(Func::new("images", images))
        .push(Conv2d::new(1, CHANNELS, 3, options, &mut rng)?)
        .push(Relu)
        .push(MaxPool2d::new(2))
        .push(Flatten)
        .push(Dropout::new(0.25, &mut rng)?))
}

/// The last layer, where the labels are.
struct Head {
    linear: Linear,
}

#[remote]
impl Head {
    fn new(inputs: usize, seed: u64) -> Result<Self> {
        let linear = Linear::new(inputs, CLASSES, &mut Rng::new(seed))?;
        Ok(Self { linear })
    }

    fn loss(&self, x: Tensor, labels: Tensor) -> Result<(Tensor, u32)> {
        outcome(&self.linear, &x, &labels)
    }

    fn parameters(&self) -> Result<Vec<RRef<Param>>> {
        nn::share(&World::current()?, &self.linear)
    }
}

/// The loss, and how many were right.
fn outcome(linear: &Linear, x: &Tensor, labels: &Tensor) -> Result<(Tensor, u32)> {
    let logits = linear.forward(x)?;
    let right = logits.detach().argmax(1)?.eq(labels)?;
    let right = right.to_dtype(DType::U32)?.sum_all()?.to_scalar()?;
    Ok((nn::cross_entropy(&logits, labels)?, right))
}

impl Model {
    /// Makes the layers, each on its worker.
    pub(super) fn new(world: &World, labels: LabelSide, seed: u64) -> Result<Self> {
        let mut seeds = Rng::new(seed);
        let servers = world.size() - 1;
        let first = first_layers(seeds.next_u64())?;
        let mut middle = RemoteSequential::new();
        let blocks = BLOCKS.windows(2);
        let (count, width) = (blocks.len(), BLOCKS[BLOCKS.len() - 1]);
        for (nth, pair) in blocks.enumerate() {
            // The last server has the head, if any has.
            let server = 1 + nth * servers / (count + usize::from(labels == LabelSide::Server));
            let args = (pair[0], pair[1], seeds.next_u64());
            middle = middle.push(RemoteModule::new(world, server as u32, block, args)?);
        }
        let seed = seeds.next_u64();
        let last = match labels {
            LabelSide::Client => Last::Here(Linear::new(width, CLASSES, &mut Rng::new(seed))?),
            LabelSide::Server => Last::There(world.remote(servers as u32, Head::new, (width, seed))?),
        };
        Ok(Self { first, middle, last })
    }

    /// References to all parameters.
    pub(super) fn parameters(&self, world: &World) -> Result<Vec<RRef<Param>>> {
        let mut all = nn::share(world, &self.first)?;
        all.extend(self.middle.remote_parameters()?);
        all.extend(match &self.last {
            Last::Here(linear) => nn::share(world, linear)?,
            Last::There(head) => head.rpc_sync(Head::parameters, ())?,
        });
        Ok(all)
    }

    /// Whether it is to learn.
    pub(super) fn set_training(&self, training: bool) {
        // The client alone has a layer that does something else then.
        self.first.set_training(training);
    }

    /// Applies the whole network. What leaves this worker is what its own layers have made of the images.
    pub(super) fn forward(&self, pixels: &Tensor, labels: &Tensor) -> Result<Outcome> {
        let hidden = self.middle.forward(&self.first.forward(pixels)?)?;
        let (loss, right) = match &self.last {
            Last::Here(linear) => outcome(linear, &hidden, labels)?,
            Last::There(head) => head.rpc_sync(Head::loss, (hidden, labels.clone()))?,
        };
        Ok(Outcome { loss, right })
    }
}

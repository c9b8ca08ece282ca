//! The network and the placement of its layers.

use telegrad::nn::{
    self, AnyModule, Conv2d, Conv2dOptions, Dropout, Flatten, Func, Linear, MaxPool2d, Relu, Rng, Sequential,
};
use telegrad::prelude::*;

use super::LabelSide;

/// Rows and columns of an image.
const SIDE: usize = 8;
const CLASSES: usize = 10;
/// Output channels of the client's convolution.
const CHANNELS: usize = 16;

/// Widths between the blocks of the servers. The first is the client's output: a quarter of the pixels per channel.
const BLOCKS: [usize; 4] = [CHANNELS * SIDE * SIDE / 4, 128, 64, 64];

/// A network with the first layers on the client, this worker, and the others on servers. With labels on the client,
/// the last layer is there too.
pub(super) struct Model {
    first: Sequential,
    middle: RemoteSequential,
    last: Last,
}

enum Last {
    Local(Linear),
    Remote(RRef<Head>),
}

/// The loss and the number of correct predictions.
pub(super) struct Outcome {
    pub(super) loss: Tensor,
    pub(super) correct: u32,
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

/// Returns the loss and the number of correct predictions.
fn outcome(linear: &Linear, x: &Tensor, labels: &Tensor) -> Result<(Tensor, u32)> {
    let logits = linear.forward(x)?;
    let correct = logits.detach().argmax(1)?.eq(labels)?;
    let correct = correct.to_dtype(DType::U32)?.sum_all()?.to_scalar()?;
    Ok((nn::cross_entropy(&logits, labels)?, correct))
}

impl Model {
    /// Creates the layers, each on its worker.
    pub(super) fn new(world: &World, labels: LabelSide, seed: u64) -> Result<Self> {
        let mut seeds = Rng::new(seed);
        let servers = world.size() - 1;
        let first = first_layers(seeds.next_u64())?;
        let mut middle = RemoteSequential::new();
        let blocks = BLOCKS.windows(2);
        let (count, width) = (blocks.len(), BLOCKS[BLOCKS.len() - 1]);
        for (nth, pair) in blocks.enumerate() {
            // With labels on a server, the last server has the head.
            let server = 1 + nth * servers / (count + usize::from(labels == LabelSide::Server));
            let args = (pair[0], pair[1], seeds.next_u64());
            middle = middle.push(RemoteModule::new(world, server as u32, block, args)?);
        }
        let seed = seeds.next_u64();
        let last = match labels {
            LabelSide::Client => Last::Local(Linear::new(width, CLASSES, &mut Rng::new(seed))?),
            LabelSide::Server => Last::Remote(world.remote(servers as u32, Head::new, (width, seed))?),
        };
        Ok(Self { first, middle, last })
    }

    /// References to all parameters.
    pub(super) fn parameters(&self, world: &World) -> Result<Vec<RRef<Param>>> {
        let mut all = nn::share(world, &self.first)?;
        all.extend(self.middle.remote_parameters()?);
        all.extend(match &self.last {
            Last::Local(linear) => nn::share(world, linear)?,
            Last::Remote(head) => head.rpc_sync(Head::parameters, ())?,
        });
        Ok(all)
    }

    /// Switches between training and evaluation.
    pub(super) fn set_training(&self, training: bool) {
        // Only the client has a layer that differs in training: the dropout.
        self.first.set_training(training);
    }

    /// Applies the whole network. Only the activations of the client's layers leave this worker.
    pub(super) fn forward(&self, pixels: &Tensor, labels: &Tensor) -> Result<Outcome> {
        let hidden = self.middle.forward(&self.first.forward(pixels)?)?;
        let (loss, correct) = match &self.last {
            Last::Local(linear) => outcome(linear, &hidden, labels)?,
            Last::Remote(head) => head.rpc_sync(Head::loss, (hidden, labels.clone()))?,
        };
        Ok(Outcome { loss, correct })
    }
}

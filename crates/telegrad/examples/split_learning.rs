//! Split learning: a client has the images and the first layers, a server the remaining layers. Only activations and
//! gradients are sent.
//!
//! ```sh
//! cargo run --release --example split_learning
//! ```
//!
//! `telegrad demo split-learning` is the complete version.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use telegrad::data::Images;
use telegrad::nn::{Linear, Relu, Rng, Sequential};
use telegrad::prelude::*;

const BATCH: usize = 32;
const EPOCHS: usize = 12;

/// The server's part of the network.
struct Server {
    layers: Sequential,
}

#[remote]
impl Server {
    fn new(seed: u64) -> Result<Self> {
        let mut rng = Rng::new(seed);
        let layers = Sequential::new()
            .push(Linear::new(128, 64, &mut rng)?)
            .push(Relu)
            .push(Linear::new(64, 10, &mut rng)?);
        Ok(Self { layers })
    }

    /// The loss and the number of recognised digits.
    fn loss(&self, hidden: Tensor, labels: Tensor) -> Result<(Tensor, u32)> {
        let logits = self.layers.forward(&hidden)?;
        let right = logits.detach().argmax(1)?.eq(&labels)?;
        let right = right.to_dtype(DType::U32)?.sum_all()?.to_scalar()?;
        Ok((nn::cross_entropy(&logits, &labels)?, right))
    }

    fn parameters(&self) -> Result<Vec<RRef<Param>>> {
        nn::share(&World::current()?, &self.layers)
    }
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["client", "server"])?;
    let world = telegrad::init(&name)?;
    if name != "client" {
        return world.serve();
    }
    train(&world)?;
    world.shutdown()
}

fn train(world: &World) -> Result<()> {
    let (images, test) = telegrad::data::digits()?;
    let mut rng = Rng::new(0);
    let client = Sequential::new().push(Linear::new(64, 128, &mut rng)?).push(Relu);
    let server = world.remote("server", Server::new, (1,))?;

    let mut params = nn::share(world, &client)?;
    params.extend(server.rpc_sync(Server::parameters, ())?);
    let adam = Adam {
        lr: 2e-3,
        ..Adam::default()
    };
    let optimizer = DistributedOptimizer::new(world, params, adam)?;

    let evaluate = |images: &Images| -> Result<f64> {
        let hidden = client.forward(&images.pixels)?;
        let (_, right) = server.rpc_sync(Server::loss, (hidden, images.labels.clone()))?;
        Ok(f64::from(right) / images.len() as f64)
    };
    let mut order: Vec<u32> = (0..images.len() as u32).collect();
    for epoch in 1..=EPOCHS {
        for last in (1..order.len()).rev() {
            order.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
        }
        let (mut total, mut batches) = (0.0, 0);
        for numbers in order.chunks(BATCH) {
            let batch = images.batch(numbers)?;
            total += world.context(|context| {
                let hidden = client.forward(&batch.pixels)?;
                let (loss, _) = server.rpc_sync(Server::loss, (hidden, batch.labels))?;
                context.backward(&loss)?;
                optimizer.step(context)?;
                Ok(loss.to_scalar::<f32>()?)
            })?;
            batches += 1;
        }
        println!("epoch {epoch:>2}: loss {:.4}", total / batches as f32);
    }
    let accuracy = evaluate(&test)? * 100.0;
    println!("accuracy on images it has not seen: {accuracy:.1}%");
    assert!(accuracy > 90.0);
    Ok(())
}

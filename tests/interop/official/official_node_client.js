/* Scenarios with the official Node client, `rocketmq-client-nodejs`, which NODE_PATH finds.

     node official_node_client.js ENDPOINTS SCENARIO

   Prints one line of JSON: what was observed. The tests compare it (`test_official_node_client`). */

'use strict';

const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const LIMIT_MS = 60_000;
// Its body fits into 4 MiB with the rest of its message, which is as much as the client receives.
const LARGE = 4_000_000;
const [endpoints, scenario] = process.argv.slice(2);
const silent = { info() {}, warn() {}, error() {}, debug() {} };
const common = { endpoints, namespace: '', logger: silent };

async function started(client) {
  await client.startup();
  return client;
}

function consumerOf(group, topic, expression = '*') {
  const subscriptions = new Map([[topic, expression]]);
  return started(new SimpleConsumer({ ...common, consumerGroup: group, subscriptions, awaitDuration: 5000 }));
}

/* Receive and acknowledge until `count` messages were received, or for some seconds. */
async function received(consumer, count) {
  const found = [];
  const end = Date.now() + LIMIT_MS;
  while (found.length < count && Date.now() < end) {
    for (const each of await consumer.receive(32, 30_000)) {
      await consumer.ack(each);
      found.push(each);
    }
  }
  return found;
}

/* Send a message of each kind, and receive it. */
async function kinds() {
  const asked = [];
  const checker = {
    async check(message) {
      asked.push(message.body.toString());
      return 1; // commit
    },
  };
  const topics = ['NORMAL', 'FIFO', 'DELAY', 'TRANSACTION'];
  const producer = await started(new Producer({ ...common, topics, topic: topics, checker }));
  const properties = new Map([['a', 'b']]);
  const normal = { topic: 'NORMAL', tag: 'A', keys: ['k1', 'k2'], properties, body: Buffer.from('normal') };
  const receipt = await producer.send(normal);
  await producer.send({ topic: 'NORMAL', tag: 'B', body: Buffer.from('other') });
  await producer.send({ topic: 'NORMAL', tag: 'large', body: Buffer.alloc(LARGE, 'x') });
  for (let number = 0; number < 5; number++) {
    await producer.send({ topic: 'FIFO', messageGroup: 'g', body: Buffer.from(String(number)) });
  }
  const due = Date.now() + 3000;
  await producer.send({ topic: 'DELAY', deliveryTimestamp: new Date(due), body: Buffer.from('delay') });
  const late = { topic: 'DELAY', deliveryTimestamp: new Date(due + 1000), body: Buffer.from('recalled') };
  await producer.recallMessage('DELAY', (await producer.send(late)).recallHandle);
  for (const [body, end] of [['committed', 'commit'], ['rolled back', 'rollback'], ['orphan', null]]) {
    const transaction = producer.beginTransaction();
    await producer.send({ topic: 'TRANSACTION', body: Buffer.from(body) }, transaction);
    if (end) await transaction[end]();
  }
  const found = {};
  let details = null;
  for (const [topic, count] of [['NORMAL', 1], ['FIFO', 5], ['DELAY', 1], ['TRANSACTION', 2]]) {
    const consumer = await consumerOf(`G${topic}`, topic, topic === 'NORMAL' ? 'A' : '*');
    const messages = await received(consumer, count);
    found[topic] = messages.map((each) => each.body.toString());
    if (topic === 'NORMAL') {
      const [one] = messages;
      details = [one.tag, [...one.keys].sort(), [...one.properties], one.messageId === receipt.messageId];
    }
    await consumer.shutdown();
  }
  const isLate = Date.now() >= due;
  const large = await consumerOf('Glarge', 'NORMAL', 'large');
  const [largest] = await received(large, 1);
  await large.shutdown();
  await producer.shutdown();
  return { found, asked, details, isLate, large: largest.body.equals(Buffer.alloc(LARGE, 'x')) };
}

/* Change the invisible time of a message, and fail to process one with a push consumer. */
async function redelivery() {
  const producer = await started(new Producer({ ...common, topic: 'NORMAL' }));
  await producer.send({ topic: 'NORMAL', body: Buffer.from('again') });
  const consumer = await consumerOf('Gagain', 'NORMAL');
  const simple = [];
  const end = Date.now() + LIMIT_MS;
  while (simple.length < 2 && Date.now() < end) {
    for (const each of await consumer.receive(1, 30_000)) {
      simple.push(each.deliveryAttempt);
      if (simple.length === 1) await consumer.changeInvisibleDuration(each, 1000);
      else await consumer.ack(each);
    }
  }
  await consumer.shutdown();
  const push = [];
  let ended;
  const isDone = new Promise((resolve) => { ended = resolve; });
  const messageListener = {
    async consume(message) {
      push.push([message.body.toString(), message.deliveryAttempt]);
      if (message.deliveryAttempt === 1) return ConsumeResult.FAILURE;
      ended();
      return ConsumeResult.SUCCESS;
    },
  };
  const subscriptions = new Map([['NORMAL', '*']]);
  await started(new PushConsumer({ ...common, consumerGroup: 'Gpush', subscriptions, messageListener }));
  await Promise.race([isDone, new Promise((resolve) => setTimeout(resolve, LIMIT_MS))]);
  return { simple, push };
}

/* Do what is refused; return the name of each error. */
async function errors() {
  const producer = await started(new Producer({ ...common, topic: 'NORMAL' }));
  const found = {};
  const attempts = {
    type: { topic: 'NORMAL', messageGroup: 'g', body: Buffer.from('x') },
    unknown: { topic: 'nothere', body: Buffer.from('x') },
    large: { topic: 'NORMAL', body: Buffer.alloc((4 << 20) + 1) },
  };
  for (const [name, message] of Object.entries(attempts)) {
    try {
      await producer.send(message);
      found[name] = '';
    } catch (error) {
      found[name] = String(error.message || error);
    }
  }
  return found;
}

({ kinds, redelivery, errors })[scenario]().then(
  (observed) => process.stdout.write(`${JSON.stringify(observed)}\n`, () => process.exit(0)),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);

/* Sends and receives with the official Node client over TLS, with access keys; NODE_PATH finds the client.

     node node_client_with_keys.js ENDPOINTS TOPIC CASE...

   A case is `name,key,secret,push`, or `name,key,secret,` without a push consumer; with an empty key the client has no
   credentials. Prints one line of JSON, for each case: the error of a send, that of a receive, what was received and
   acknowledged, and the error of the start of a push consumer. The authority
   that has signed the node's certificate is in GRPC_DEFAULT_SSL_ROOTS_FILE_PATH. */

'use strict';

const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const LIMIT_MS = 60_000;
// By default 3 s, which a busy machine needs for the first call.
const REQUEST_TIMEOUT_MS = 20_000;
const [endpoints, topic, ...cases] = process.argv.slice(2);
const silent = { info() {}, warn() {}, error() {}, debug() {} };

async function errorOf(action) {
  try {
    await action();
    return '';
  } catch (error) {
    const found = [];
    for (let each = error; each; each = each.cause) found.push(`${each.name}: ${each.message}`);
    return found.join('; ');
  }
}

async function sent(options, body) {
  const producer = new Producer({ ...options, topic });
  await producer.startup();
  await producer.send({ topic, body: Buffer.from(body) });
  await producer.shutdown();
}

/* Receive and acknowledge a message; its body is added to a list. */
async function received(options, bodies) {
  const subscriptions = new Map([[topic, '*']]);
  const consumer = new SimpleConsumer({ ...options, consumerGroup: `G${topic}`, subscriptions, awaitDuration: 5000 });
  await consumer.startup();
  for (const end = Date.now() + LIMIT_MS; bodies.length === 0 && Date.now() < end;) {
    for (const message of await consumer.receive(32, 30_000)) {
      await consumer.ack(message);
      bodies.push(message.body.toString());
    }
  }
  await consumer.shutdown();
}

/* Start a push consumer, which is not shut down: that waits for its last receive. */
async function pushed(options) {
  const messageListener = { async consume() { return ConsumeResult.SUCCESS; } };
  const subscriptions = new Map([[topic, '*']]);
  await new PushConsumer({ ...options, consumerGroup: `P${topic}`, subscriptions, messageListener }).startup();
}

async function main() {
  const found = {};
  for (const each of cases) {
    const [name, accessKey, accessSecret, more] = each.split(',');
    const sessionCredentials = accessKey ? { accessKey, accessSecret } : undefined;
    const options = {
      endpoints, namespace: '', logger: silent, sslEnabled: true, requestTimeout: REQUEST_TIMEOUT_MS, sessionCredentials,
    };
    const bodies = [];
    found[name] = {
      send: await errorOf(() => sent(options, name)),
      receive: await errorOf(() => received(options, bodies)),
      bodies,
      push: more === 'push' ? await errorOf(() => pushed(options)) : '',
    };
  }
  return found;
}

main().then(
  (found) => process.stdout.write(`${JSON.stringify(found)}\n`, () => process.exit(0)),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);

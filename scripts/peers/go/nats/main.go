// Drives a stream of NATS JetStream with three replicas in files: it publishes and waits for the acknowledgement.
//
// A batch is an atomic batch of the stream: the last message of a batch commits it, and only that is acknowledged.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"peers/load"
)

const (
	subject = "bench"
	stream  = "BENCH"
	// The time in which three servers that have just started must have a leader.
	startLimit = 60 * time.Second
	pause      = 50 * time.Millisecond
	// The time after which an append of a failover is attempted again.
	retryAfter = 250 * time.Millisecond
	// The time after which an append of the other workloads has failed.
	appendLimit = 20 * time.Second
)

type target struct {
	connection *nats.Conn
	jetstream  jetstream.JetStream
	stream     jetstream.Stream
	limit      time.Duration
	run        string
	batches    atomic.Int64
}

func main() {
	load.Main(func(settings load.Settings) (load.Target, error) { return open(settings) })
}

func open(settings load.Settings) (*target, error) {
	urls := make([]string, len(settings.Endpoints))
	for number, endpoint := range settings.Endpoints {
		urls[number] = "nats://" + endpoint
	}
	// Not the defaults of 2 s: they would add to the time of a failover.
	connection, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(connection)
	if err != nil {
		return nil, err
	}
	opened := &target{connection: connection, jetstream: js, limit: appendLimit, run: nats.NewInbox()}
	if settings.Failover {
		opened.limit = retryAfter
	}
	opened.stream, err = openStream(js)
	return opened, err
}

// openStream creates the stream unless it exists; it waits until the servers have elected a leader.
func openStream(js jetstream.JetStream) (jetstream.Stream, error) {
	config := jetstream.StreamConfig{
		Name:               stream,
		Subjects:           []string{subject},
		Storage:            jetstream.FileStorage,
		Replicas:           3,
		AllowAtomicPublish: true,
	}
	var opened jetstream.Stream
	var err error
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); time.Sleep(pause) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		opened, err = js.CreateOrUpdateStream(ctx, config)
		cancel()
		if err == nil {
			return opened, nil
		}
	}
	return nil, fmt.Errorf("no stream with three replicas within %v: %w", startLimit, err)
}

func (target *target) Append(_ int, bodies [][]byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), target.limit)
	defer cancel()
	if len(bodies) == 1 {
		_, err := target.jetstream.Publish(ctx, subject, bodies[0], jetstream.WithRetryAttempts(0))
		return err
	}
	return target.publishBatch(ctx, bodies)
}

func (target *target) publishBatch(ctx context.Context, bodies [][]byte) error {
	id := fmt.Sprintf("%s-%d", target.run[len(target.run)-22:], target.batches.Add(1))
	last := len(bodies) - 1
	for number, body := range bodies[:last] {
		if err := target.connection.PublishMsg(message(id, number, body)); err != nil {
			return err
		}
	}
	commit := message(id, last, bodies[last])
	commit.Header.Set("Nats-Batch-Commit", "1")
	answer, err := target.connection.RequestMsgWithContext(ctx, commit)
	if err != nil {
		return err
	}
	// The acknowledgement of a batch has its number of messages; everything else is an error.
	if !strings.Contains(string(answer.Data), fmt.Sprintf(`"count":%d`, len(bodies))) {
		return errors.New("batch refused: " + string(answer.Data))
	}
	return nil
}

func message(batch string, number int, body []byte) *nats.Msg {
	message := nats.NewMsg(subject)
	message.Data = body
	message.Header.Set("Nats-Batch-Id", batch)
	message.Header.Set("Nats-Batch-Sequence", strconv.Itoa(number+1))
	return message
}

// Leader relies on the names of the servers: n0, n1 and n2, in the order of the endpoints.
func (target *target) Leader() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), appendLimit)
	defer cancel()
	info, err := target.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	if info.Cluster == nil {
		return 0, errors.New("the stream has no leader")
	}
	return strconv.Atoi(strings.TrimPrefix(info.Cluster.Leader, "n"))
}

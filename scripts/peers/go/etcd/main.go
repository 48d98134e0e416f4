// Drives etcd: an append is a put of a new key, and a batch is one transaction of puts.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"peers/load"
)

const (
	// The time in which three servers that have just started must have a leader.
	startLimit = 60 * time.Second
	// The time after which an append of a failover is attempted again.
	retryAfter = 250 * time.Millisecond
	// The time after which an append of the other workloads has failed.
	appendLimit = 20 * time.Second
)

type target struct {
	client    *clientv3.Client
	endpoints []string
	limit     time.Duration
	run       int64
	keys      atomic.Int64
}

func main() {
	load.Main(func(settings load.Settings) (load.Target, error) { return open(settings) })
}

func open(settings load.Settings) (*target, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   settings.Endpoints,
		DialTimeout: startLimit,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	opened := &target{client: client, endpoints: settings.Endpoints, limit: appendLimit, run: time.Now().UnixNano()}
	if settings.Failover {
		opened.limit = retryAfter
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	// A linearizable read, which succeeds as soon as there is a leader.
	_, err = client.Get(ctx, "ready")
	return opened, err
}

func (target *target) Append(_ int, bodies [][]byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), target.limit)
	defer cancel()
	if len(bodies) == 1 {
		_, err := target.client.Put(ctx, target.key(), string(bodies[0]))
		return err
	}
	puts := make([]clientv3.Op, len(bodies))
	for number, body := range bodies {
		puts[number] = clientv3.OpPut(target.key(), string(body))
	}
	_, err := target.client.Txn(ctx).Then(puts...).Commit()
	return err
}

// key returns a key that no run has used, in ascending order, as the entries of a log have.
func (target *target) key() string {
	return fmt.Sprintf("%d-%010d", target.run, target.keys.Add(1))
}

func (target *target) Leader() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), appendLimit)
	defer cancel()
	for number, endpoint := range target.endpoints {
		status, err := target.client.Status(ctx, endpoint)
		if err == nil && status.Header.MemberId == status.Leader {
			return number, nil
		}
	}
	return 0, errors.New("no node is the leader")
}

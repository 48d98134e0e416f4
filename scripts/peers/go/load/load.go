// Package load drives one system with closed loops of callers, and measures them.
//
// It writes to standard output what the program that measures reads: a line "begin" and a line "end" around the
// measured time, and then "result" with the figures in JSON. For a failover it writes "ready" with the position of the
// leader, waits for a line of standard input, and writes "appended" after the next append that succeeds.
//
// The package does not know any system; each driver passes its own Target.
package load

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"
)

const (
	// Appends before the leader is killed, so that the client is connected to it.
	beforeKill = 50
	// The pause between two attempts of a failover.
	retryPause = 5 * time.Millisecond
)

// Settings are the options of a run.
type Settings struct {
	Endpoints []string
	Callers   int
	Batch     int
	Body      int
	WarmUp    time.Duration
	Duration  time.Duration
	Failover  bool
}

// Target is a system that appends batches of bodies.
type Target interface {
	// Append returns when the batch is acknowledged. Callers have different numbers, from 0.
	Append(caller int, bodies [][]byte) error
	// Leader returns the position of the leader in Settings.Endpoints.
	Leader() (int, error)
}

type result struct {
	Entries int64   `json:"entries"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
}

// Main reads the options, opens the target and drives it; it ends the process with status 1 after an error.
func Main(open func(Settings) (Target, error)) {
	if err := run(open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(open func(Settings) (Target, error)) error {
	settings := parse()
	target, err := open(settings)
	if err != nil {
		return err
	}
	bodies := make([][]byte, settings.Batch)
	for number := range bodies {
		bodies[number] = make([]byte, settings.Body)
		// Incompressible, so that no layer saves bytes by compression.
		_, _ = rand.Read(bodies[number])
	}
	if settings.Failover {
		return failover(target, bodies)
	}
	return measure(target, bodies, settings)
}

func parse() Settings {
	endpoints := flag.String("endpoints", "", "host:port of each node, separated by commas")
	callers := flag.Int("callers", 1, "callers that append at the same time")
	batch := flag.Int("batch", 1, "bodies of one append")
	body := flag.Int("body", 1024, "bytes of a body")
	warmUp := flag.Float64("warm-up", 0.5, "seconds before the measured time")
	seconds := flag.Float64("seconds", 3, "measured time")
	isFailover := flag.Bool("failover", false, "append while the leader is killed")
	flag.Parse()
	return Settings{
		Endpoints: strings.Split(*endpoints, ","),
		Callers:   *callers,
		Batch:     *batch,
		Body:      *body,
		WarmUp:    duration(*warmUp),
		Duration:  duration(*seconds),
		Failover:  *isFailover,
	}
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}

func measure(target Target, bodies [][]byte, settings Settings) error {
	begin := time.Now().Add(settings.WarmUp)
	end := begin.Add(settings.Duration)
	latencies := make([][]time.Duration, settings.Callers)
	failures := make([]error, settings.Callers)
	var callers sync.WaitGroup
	for caller := range settings.Callers {
		callers.Add(1)
		go func() {
			defer callers.Done()
			latencies[caller], failures[caller] = call(target, caller, bodies, begin, end)
		}()
	}
	time.Sleep(time.Until(begin))
	fmt.Println("begin")
	time.Sleep(time.Until(end))
	fmt.Println("end")
	callers.Wait()
	var all []time.Duration
	for caller, each := range latencies {
		if failures[caller] != nil {
			return failures[caller]
		}
		all = append(all, each...)
	}
	return print(all, len(bodies))
}

// call appends until the end, and returns the latencies of the appends that ended in the measured time.
func call(target Target, caller int, bodies [][]byte, begin, end time.Time) ([]time.Duration, error) {
	var latencies []time.Duration
	for {
		began := time.Now()
		if !began.Before(end) {
			return latencies, nil
		}
		if err := target.Append(caller, bodies); err != nil {
			return nil, err
		}
		if ended := time.Now(); !ended.Before(begin) && !ended.After(end) {
			latencies = append(latencies, ended.Sub(began))
		}
	}
}

func print(latencies []time.Duration, batch int) error {
	sort.Slice(latencies, func(one, other int) bool { return latencies[one] < latencies[other] })
	figures := result{Entries: int64(len(latencies) * batch), P50: share(latencies, 0.5), P99: share(latencies, 0.99)}
	text, err := json.Marshal(figures)
	if err == nil {
		fmt.Println("result", string(text))
	}
	return err
}

// share returns a percentile of sorted latencies in milliseconds; 0 without latencies.
func share(ordered []time.Duration, part float64) float64 {
	if len(ordered) == 0 {
		return 0
	}
	return float64(ordered[min(int(float64(len(ordered))*part), len(ordered)-1)]) / float64(time.Millisecond)
}

func failover(target Target, bodies [][]byte) error {
	for range beforeKill {
		if err := target.Append(0, bodies); err != nil {
			return err
		}
	}
	leader, err := target.Leader()
	if err != nil {
		return err
	}
	fmt.Println("ready", leader)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	// The program that measures ends this one if no append succeeds in time.
	for target.Append(0, bodies) != nil {
		time.Sleep(retryPause)
	}
	fmt.Println("appended")
	return nil
}

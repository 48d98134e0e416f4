// Scenarios with the official Go client, `github.com/apache/rocketmq-clients/golang/v5`, unchanged:
//
//	official_go_client ENDPOINTS SCENARIO
//	official_go_client ENDPOINTS keys TOPIC CASE...
//
// Prints one line of JSON: what was observed. The tests compare it (`test_official_go_client`, and for access keys and TLS
// `test_official_clients_with_keys`).
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	limit = 60 * time.Second
	// Its body fits into 4 MiB with the rest of its message, which is as much as the client receives.
	large = 4_000_000
)

var endpoints string

type observed map[string]any

func main() {
	endpoints = os.Args[1]
	rmq.EnableSsl = os.Args[2] == "keys"
	scenarios := map[string]func() observed{
		"kinds": kinds, "redelivery": redelivery, "errors": failures, "load": load, "keys": keys,
	}
	printed, err := json.Marshal(scenarios[os.Args[2]]())
	check(err)
	fmt.Println(string(printed))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: endpoints, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func message(topic, body string) *rmq.Message {
	return &rmq.Message{Topic: topic, Body: []byte(body)}
}

func producer(options ...rmq.ProducerOption) rmq.Producer {
	made, err := rmq.NewProducer(config(""), options...)
	check(err)
	check(made.Start())
	return made
}

func send(from rmq.Producer, each *rmq.Message) (*rmq.SendReceipt, error) {
	receipts, err := from.Send(context.Background(), each)
	if err != nil {
		return nil, err
	}
	return receipts[0], nil
}

func sent(from rmq.Producer, each *rmq.Message) *rmq.SendReceipt {
	receipt, err := send(from, each)
	check(err)
	return receipt
}

func simple(group string, subscriptions map[string]*rmq.FilterExpression) rmq.SimpleConsumer {
	made, err := rmq.NewSimpleConsumer(config(group), rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(subscriptions))
	check(err)
	check(made.Start())
	return made
}

func push(group, topic string, consume func(*rmq.MessageView) rmq.ConsumerResult) rmq.PushConsumer {
	made, err := rmq.NewPushConsumer(config(group),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	check(err)
	check(made.Start())
	return made
}

// Receive and acknowledge until `count` messages were received, or for some time.
func received(consumer rmq.SimpleConsumer, count int) []*rmq.MessageView {
	var found []*rmq.MessageView
	for end := time.Now().Add(limit); len(found) < count && time.Now().Before(end); {
		// The client makes an error of "no message".
		views, _ := consumer.Receive(context.Background(), 32, 30*time.Second)
		for _, view := range views {
			check(consumer.Ack(context.Background(), view))
			found = append(found, view)
		}
	}
	return found
}

func bodies(views []*rmq.MessageView) []string {
	found := []string{}
	for _, view := range views {
		found = append(found, string(view.GetBody()))
	}
	return found
}

// Send a message of each kind, and receive it.
func kinds() observed {
	var lock sync.Mutex
	asked := []string{}
	checker := &rmq.TransactionChecker{Check: func(view *rmq.MessageView) rmq.TransactionResolution {
		lock.Lock()
		defer lock.Unlock()
		asked = append(asked, string(view.GetBody()))
		return rmq.COMMIT
	}}
	from := producer(rmq.WithTopics("NORMAL", "FIFO", "DELAY", "TRANSACTION"), rmq.WithTransactionChecker(checker))
	normal := message("NORMAL", "normal")
	normal.SetTag("A")
	normal.SetKeys("k1", "k2")
	normal.AddProperty("a", "7")
	receipt := sent(from, normal)
	other := message("NORMAL", "other")
	other.SetTag("B")
	other.AddProperty("a", "1")
	sent(from, other)
	largest := &rmq.Message{Topic: "NORMAL", Body: bytes.Repeat([]byte("x"), large)}
	largest.SetTag("large")
	sent(from, largest)
	for number := range 5 {
		each := message("FIFO", strconv.Itoa(number))
		each.SetMessageGroup("g")
		sent(from, each)
	}
	due := time.Now().Add(3 * time.Second)
	delayed := message("DELAY", "delay")
	delayed.SetDelayTimestamp(due)
	sent(from, delayed)
	for _, body := range []string{"committed", "rolled back", "orphan"} {
		transaction := from.BeginTransaction()
		_, err := from.SendWithTransaction(context.Background(), message("TRANSACTION", body), transaction)
		check(err)
		switch body {
		case "committed":
			check(transaction.Commit())
		case "rolled back":
			check(transaction.RollBack())
		}
	}
	found := map[string][]string{}
	byTag := simple("GNORMAL", map[string]*rmq.FilterExpression{"NORMAL": rmq.NewFilterExpression("A || C")})
	one := received(byTag, 1)[0]
	found["NORMAL"] = bodies([]*rmq.MessageView{one})
	bySQL := simple("GSQL", map[string]*rmq.FilterExpression{
		"NORMAL": rmq.NewFilterExpressionWithType("a BETWEEN 5 AND 9 AND TAGS = 'A'", rmq.SQL92)})
	found["SQL"] = bodies(received(bySQL, 1))
	ofLarge := simple("Glarge", map[string]*rmq.FilterExpression{"NORMAL": rmq.NewFilterExpression("large")})
	isLarge := bytes.Equal(received(ofLarge, 1)[0].GetBody(), largest.Body)
	rest := simple("GALL", map[string]*rmq.FilterExpression{
		"FIFO": rmq.SUB_ALL, "DELAY": rmq.SUB_ALL, "TRANSACTION": rmq.SUB_ALL})
	for _, view := range received(rest, 8) {
		found[view.GetTopic()] = append(found[view.GetTopic()], string(view.GetBody()))
	}
	isLate := !time.Now().Before(due)
	keys := append([]string{}, one.GetKeys()...)
	sort.Strings(keys)
	lock.Lock()
	defer lock.Unlock()
	return observed{"found": found, "asked": asked, "isLate": isLate, "large": isLarge, "details": []any{
		*one.GetTag(), keys, one.GetProperties()["a"], one.GetMessageId() == receipt.MessageID, one.GetDeliveryAttempt()}}
}

// Change the invisible time of a message, and fail to process one with a push consumer.
func redelivery() observed {
	from := producer(rmq.WithTopics("NORMAL"))
	sent(from, message("NORMAL", "again"))
	consumer := simple("Gagain", map[string]*rmq.FilterExpression{"NORMAL": rmq.SUB_ALL})
	attempts := []int32{}
	for end := time.Now().Add(limit); len(attempts) < 2 && time.Now().Before(end); {
		views, _ := consumer.Receive(context.Background(), 1, 30*time.Second)
		for _, view := range views {
			attempts = append(attempts, view.GetDeliveryAttempt())
			if len(attempts) == 1 {
				check(consumer.ChangeInvisibleDuration(view, time.Second))
			} else {
				check(consumer.Ack(context.Background(), view))
			}
		}
	}
	pushed := make(chan []any, 100)
	push("Gpush", "NORMAL", func(view *rmq.MessageView) rmq.ConsumerResult {
		pushed <- []any{string(view.GetBody()), view.GetDeliveryAttempt()}
		if view.GetDeliveryAttempt() == 1 {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	dead := make(chan string, 100)
	push("Gdeadfifo", "FIFO", func(view *rmq.MessageView) rmq.ConsumerResult {
		dead <- string(view.GetBody())
		return rmq.FAILURE
	})
	ordered := producer(rmq.WithTopics("FIFO"))
	letter := message("FIFO", "dead")
	letter.SetMessageGroup("g")
	sent(ordered, letter)
	letters := []string{}
	for end := time.Now().Add(limit); len(letters) == 0 && time.Now().Before(end); {
		// Its topic is created with the first dead letter.
		made, err := rmq.NewSimpleConsumer(config("Gletters"), rmq.WithSimpleAwaitDuration(5*time.Second),
			rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{"%DLQ%Gdeadfifo": rmq.SUB_ALL}))
		check(err)
		if made.Start() == nil {
			letters = bodies(received(made, 1))
		} else {
			time.Sleep(time.Second)
		}
	}
	return observed{"simple": attempts, "push": [][]any{<-pushed, <-pushed}, "dead": letters, "attempts": len(dead)}
}

// Do what is refused; return the text of each error.
func failures() observed {
	from := producer(rmq.WithTopics("NORMAL"))
	text := func(each *rmq.Message) string {
		_, err := send(from, each)
		return fmt.Sprint(err)
	}
	wrong := message("NORMAL", "x")
	wrong.SetMessageGroup("g")
	return observed{
		"type":    text(wrong),
		"unknown": text(message("nothere", "x")),
		"large":   text(&rmq.Message{Topic: "NORMAL", Body: make([]byte, 4<<20+1)}),
	}
}

// Send in message groups until standard input ends, while push consumers get them; print `sending` first.
func load() observed {
	ended := make(chan struct{})
	go func() {
		_, _ = io.ReadAll(os.Stdin)
		close(ended)
	}()
	var lock sync.Mutex
	got := map[string][]int{}
	consume := func(view *rmq.MessageView) rmq.ConsumerResult {
		group, number, _ := strings.Cut(string(view.GetBody()), ":")
		parsed, err := strconv.Atoi(number)
		check(err)
		lock.Lock()
		defer lock.Unlock()
		got[group] = append(got[group], parsed)
		return rmq.SUCCESS
	}
	push("Gfifo", "FIFO", consume)
	push("Gfifo", "FIFO", consume)
	from := producer(rmq.WithTopics("FIFO"))
	acknowledged := map[string][]int{}
	count, failed, errors := 0, 0, []string{}
	var longest time.Duration
	var senders sync.WaitGroup
	for index := range 4 {
		senders.Add(1)
		go func() {
			defer senders.Done()
			group, after, before := fmt.Sprint("g", index), 0, time.Now()
			for number := 0; after < 20; number++ {
				each := message("FIFO", fmt.Sprint(group, ":", number))
				each.SetMessageGroup(group)
				_, err := send(from, each)
				lock.Lock()
				if err != nil {
					failed++
					errors = append(errors, err.Error())
					lock.Unlock()
					continue
				}
				acknowledged[group] = append(acknowledged[group], number)
				count++
				if count == 80 {
					fmt.Println("sending")
				}
				longest = max(longest, time.Since(before))
				lock.Unlock()
				before = time.Now()
				select {
				case <-ended:
					after++
				default:
				}
			}
		}()
	}
	senders.Wait()
	var lost []string
	for end := time.Now().Add(2 * limit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		lost = []string{}
		lock.Lock()
		for group, numbers := range acknowledged {
			seen := map[int]bool{}
			for _, number := range got[group] {
				seen[number] = true
			}
			for _, number := range numbers {
				if !seen[number] {
					lost = append(lost, fmt.Sprint(group, ":", number))
				}
			}
		}
		lock.Unlock()
		if len(lost) == 0 {
			break
		}
	}
	lock.Lock()
	defer lock.Unlock()
	disordered, again := map[string][]int{}, 0
	for group, numbers := range got {
		highest, seen := -1, map[int]bool{}
		for _, number := range numbers {
			if seen[number] {
				again++
			} else if number < highest {
				disordered[group] = numbers
			}
			seen[number] = true
			highest = max(highest, number)
		}
	}
	return observed{"sent": count, "failed": failed, "errors": errors, "lost": lost, "disordered": disordered,
		"again": again, "longestMs": longest.Milliseconds()}
}

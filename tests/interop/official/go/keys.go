package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// Send and receive over TLS with the access key of each case, an argument `name,key,secret,push` behind the topic; with an
// empty key the client has no credentials. Observed are, for each case, the error of a send, that of a receive, what was
// received and acknowledged, and the error of the start of a push consumer.
func keys() observed {
	found := observed{}
	topic := os.Args[3]
	for _, each := range os.Args[4:] {
		parts := strings.Split(each, ",")
		config := &rmq.Config{Endpoint: endpoints, ConsumerGroup: "G" + topic,
			Credentials: &credentials.SessionCredentials{AccessKey: parts[1], AccessSecret: parts[2]}}
		sendError := sendWith(config, topic, parts[0])
		views, receiveError := receiveWith(config, topic)
		found[parts[0]] = observed{
			"send": errorText(sendError), "receive": errorText(receiveError), "bodies": bodies(views),
			"push": errorText(pushWith(config, topic, parts[3]))}
	}
	return found
}

func sendWith(config *rmq.Config, topic, body string) error {
	made, err := rmq.NewProducer(config, rmq.WithTopics(topic))
	if err != nil {
		return err
	}
	if err = made.Start(); err != nil {
		return err
	}
	_, err = send(made, message(topic, body))
	return err
}

// Receive and acknowledge a message.
func receiveWith(config *rmq.Config, topic string) ([]*rmq.MessageView, error) {
	made, err := rmq.NewSimpleConsumer(config, rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}))
	if err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(limit); time.Now().Before(end); {
		views, err := made.Receive(context.Background(), 32, 30*time.Second)
		// "No message" is an error of this client.
		if err != nil && !strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") {
			return nil, err
		}
		for _, view := range views {
			if err = made.Ack(context.Background(), view); err != nil {
				return nil, err
			}
		}
		if len(views) > 0 {
			return views, nil
		}
	}
	return nil, nil
}

// Start a push consumer, if that is wanted.
func pushWith(config *rmq.Config, topic, wanted string) error {
	if wanted != "push" {
		return nil
	}
	config.ConsumerGroup = "P" + topic
	made, err := rmq.NewPushConsumer(config, rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{
			Consume: func(*rmq.MessageView) rmq.ConsumerResult { return rmq.SUCCESS }}))
	if err != nil {
		return err
	}
	return made.Start()
}

// The type and the text of an error; empty: none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%T: %v", err, err)
}

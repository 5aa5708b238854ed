import java.net.Authenticator;
import java.net.PasswordAuthentication;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

class JavaHttpClient {
    public static void main(String[] urls) throws Exception {
        // A credential in the address of the proxy is unknown to Java.
        String user = System.getenv("PROXY_USER");
        HttpClient.Builder builder = HttpClient.newBuilder();
        if (user != null && !user.isEmpty()) {
            builder.authenticator(new Authenticator() {
                @Override
                protected PasswordAuthentication getPasswordAuthentication() {
                    return new PasswordAuthentication(user, System.getenv("PROXY_TOKEN").toCharArray());
                }
            });
        }
        HttpClient client = builder.build();
        for (String url : urls) {
            try {
                HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
                System.out.println(client.send(request, BodyHandlers.ofString()).statusCode() + " " + url);
            } catch (java.io.IOException error) {
                System.out.println("000 " + url + " " + error.getMessage());
            }
        }
    }
}
